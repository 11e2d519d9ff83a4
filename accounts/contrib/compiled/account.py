"""The compiled counterparts of the account's methods, where no transaction is open: one statement each.

A change with an idempotency key, which is looked up under the lock, is a few in one transaction. Each function takes
the arguments of its method, and returns ``NotImplemented`` for: a change inside a transaction, whose locks belong to
the caller; a time limit, which is a setting of its own; and a statement that found or wrote nothing, so that the method
raises the right error.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.db import router, transaction

from accounts.abstract import AbstractBaseAccount, validate_key
from accounts.amounts import parse_amount
from accounts.contrib.compiled.runner import StatementRunner, autocommit_runner
from accounts.contrib.compiled.statements import WaitMode
from accounts.errors import AccountError
from django_lockstep.errors import translated_errors
from django_lockstep.locking.durations import Duration
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
    key = validate_key(idempotency_key)
    # A time limit must be set before the lock, by a statement of its own.
    runner = autocommit_runner(model, using or router.db_for_write(model)) if timeout is None else None
    if runner is None:
        return NotImplemented
    pk = model._meta.pk.to_python(pk)
    wait: WaitMode = "nowait" if nowait else "queue"
    with translated_errors(model=model, pk=pk):
        if key is None:
            account = runner.lock_and_add(pk, amount, wait=wait)
        else:
            account = _add_once(runner, pk, amount, key=key, wait=wait)
    return NotImplemented if account is None else account


def _add_once(
    runner: StatementRunner, pk: object, amount: Decimal, *, key: str, wait: WaitMode
) -> AbstractBaseAccount | None:
    """Lock the row, add the amount unless the key was used before; return the account, None if it does not exist."""
    with transaction.atomic(using=runner.using):
        account = runner.lock(pk, wait=wait)
        if account is not None and not account.replay_if_done(amount, key, using=runner.using):
            runner.change(account, amount, compare=False, idempotency_key=key)
    return account


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
    with translated_errors(model=type(account), pk=account.pk):
        try:
            written = runner.change(account, amount)
        except AccountError:
            return NotImplemented  # the method finds out whether the instance is outdated or the amount not covered
        # Tell a conflict from a deleted row, for which the method raises DoesNotExist.
        if not written and current_version(type(account), account.pk, using=using) is None:
            return NotImplemented
    return written
