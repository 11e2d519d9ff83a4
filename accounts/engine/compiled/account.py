"""The compiled counterparts of the account's methods: one statement each, where no transaction is open.

Each takes the arguments of its method, and returns ``NotImplemented`` for: a change inside a transaction, whose locks
belong to the caller; an idempotency key or a time limit, which need more than one statement; and a statement that wrote
nothing, so that the method raises the right error.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.db import router

from accounts.abstract import AbstractBaseAccount
from accounts.amounts import parse_amount
from accounts.engine.compiled.runner import autocommit_runner
from accounts.errors import AccountError
from django_lockstep.errors import translated_errors
from django_lockstep.locking.durations import Duration
from django_lockstep.locking.memory import apply_written
from django_lockstep.locking.versions import seen_version
from django_lockstep.locking.writes import current_version

__all__ = ["deposit", "try_deposit", "try_withdraw", "withdraw"]


def deposit(model: type[AbstractBaseAccount], pk: object, amount: object, **options: Any) -> Any:
    """``Account.deposit``: lock, add and insert the entry in one statement; waiting sessions are served in order."""
    return _add(model, pk, parse_amount(amount), **options)


def withdraw(model: type[AbstractBaseAccount], pk: object, amount: object, **options: Any) -> Any:
    """``Account.withdraw``, by the same statement; the method raises the error for an uncovered amount."""
    return _add(model, pk, -parse_amount(amount), **options)


def _add(
    model: type[AbstractBaseAccount],
    pk: object,
    amount: Decimal,
    *,
    idempotency_key: str | None = None,
    nowait: bool = False,
    timeout: Duration | None = None,
    using: str | None = None,
) -> Any:
    # A key must be looked up under the lock, and a timeout set before it: both are statements of their own.
    if idempotency_key is not None or timeout is not None:
        return NotImplemented
    runner = autocommit_runner(model, using or router.db_for_write(model))
    if runner is None:
        return NotImplemented
    pk = model._meta.pk.to_python(pk)
    with translated_errors(model=model, pk=pk):
        account = runner.lock_and_add(pk, amount, wait="nowait" if nowait else "queue")
    return NotImplemented if account is None else account


def try_deposit(account: AbstractBaseAccount, amount: object, *, idempotency_key: str | None = None) -> Any:
    """``account.try_deposit``: the guarded UPDATE and the entry in one statement."""
    return _try(account, parse_amount(amount), key=idempotency_key)


def try_withdraw(account: AbstractBaseAccount, amount: object, *, idempotency_key: str | None = None) -> Any:
    """``account.try_withdraw``; a withdrawal that this instance does not cover is left to the method."""
    return _try(account, -parse_amount(amount), key=idempotency_key)


def _try(account: AbstractBaseAccount, amount: Decimal, *, key: str | None) -> Any:
    using = account._write_alias()
    runner = autocommit_runner(type(account), using) if key is None else None
    if runner is None:
        return NotImplemented
    seen = seen_version(account)
    try:
        balance = account.balance_after(amount)
    except AccountError:
        return NotImplemented  # the method finds out whether the instance is outdated or the amount not covered
    with translated_errors(model=type(account), pk=account.pk):
        written = runner.write(account, balance, seen=seen, entry={"amount": amount})
        # Tell a conflict from a deleted row, for which the method raises DoesNotExist.
        if not written and current_version(type(account), account.pk, using=using) is None:
            return NotImplemented
    apply_written(account, written)
    return bool(written)
