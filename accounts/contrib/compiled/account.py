"""The compiled counterparts of the account's methods, where no transaction is open: one statement each.

A change with an idempotency key, which is looked up under the lock, is a few in one transaction. Each function takes
the arguments of its method, and returns ``NotImplemented`` for: a change inside a transaction, whose locks belong to
the caller; a time limit, which is a setting of its own; and a statement that found or wrote nothing, so that the method
raises the right error.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.db import transaction

from accounts.abstract import AbstractBaseAccount
from accounts.contrib.compiled.runner import StatementRunner, autocommit_runner
from accounts.contrib.compiled.statements import WaitMode
from accounts.errors import AccountError

__all__ = ["deposit", "try_deposit", "try_withdraw", "withdraw"]


def deposit(model: type[AbstractBaseAccount], pk: object, amount: Decimal, **options: Any) -> Any:
    """``Account.deposit``: lock, add and insert the entry in one statement; waiting sessions are served in order."""
    return _add(model, pk, amount, **options)


def withdraw(model: type[AbstractBaseAccount], pk: object, amount: Decimal, **options: Any) -> Any:
    """``Account.withdraw``, by the same statement; the method raises the error for an uncovered amount."""
    return _add(model, pk, -amount, **options)


def _add(
    model: type[AbstractBaseAccount],
    pk: object,
    amount: Decimal,
    *,
    using: str,
    idempotency_key: str | None = None,
    nowait: bool = False,
    timeout: object = None,
) -> Any:
    # A time limit must be set before the lock, by a statement of its own.
    runner = autocommit_runner(model, using) if timeout is None else None
    if runner is None:
        return NotImplemented
    wait: WaitMode = "nowait" if nowait else "queue"
    if idempotency_key is None:
        account = runner.lock_and_add(pk, amount, wait=wait)
    else:
        account = _add_once(runner, pk, amount, key=idempotency_key, wait=wait)
    return NotImplemented if account is None else account


def _add_once(
    runner: StatementRunner, pk: object, amount: Decimal, *, key: str, wait: WaitMode
) -> AbstractBaseAccount | None:
    """Lock the row, add the amount unless the key was used before; return the account, None if it does not exist."""
    with transaction.atomic(using=runner.using):
        account = runner.lock(pk, wait=wait)
        if account is not None and not account.replay_idempotent(amount, key):
            runner.change(account, amount, compare=False, idempotency_key=key)
    return account


def try_deposit(account: AbstractBaseAccount, amount: Decimal, *, idempotency_key: str | None) -> Any:
    """``account.try_deposit``: the guarded UPDATE and the entry in one statement."""
    return _try(account, amount, key=idempotency_key)


def try_withdraw(account: AbstractBaseAccount, amount: Decimal, *, idempotency_key: str | None) -> Any:
    """``account.try_withdraw``; a withdrawal that this instance does not cover is left to the method."""
    return _try(account, -amount, key=idempotency_key)


def _try(account: AbstractBaseAccount, amount: Decimal, *, key: str | None) -> Any:
    runner = autocommit_runner(type(account), str(account._state.db)) if key is None else None
    if runner is None:
        return NotImplemented
    try:
        written = runner.change(account, amount)
    except AccountError:
        return NotImplemented  # the method finds out whether the instance is outdated or the amount not covered
    if not written:
        account.raise_if_deleted()
    return written
