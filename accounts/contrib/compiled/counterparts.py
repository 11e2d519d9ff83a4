"""The compiled counterparts of the account's methods, where no transaction is open.

Each function takes the arguments of its method, does one attempt with the same lock and the same version check, and
returns ``NotImplemented`` for a change inside a transaction, whose locks belong to the caller, for an idempotency key,
which is looked up first, and for a statement that read or wrote nothing, so that the method raises the right error. The
method's decorator retries.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from accounts.abstract import AbstractBaseAccount
from accounts.contrib.compiled.runner import autocommit_runner
from accounts.errors import AccountError


def deposit(
    model: type[AbstractBaseAccount],
    pk: object,
    amount: Decimal,
    *,
    using: str,
    idempotency_key: str | None = None,
    nowait: bool = False,
) -> Any:
    """``Account.deposit``: lock, add and insert the entry in one statement; waiting sessions are served in order."""
    # A key is looked up under the lock: by a statement of its own.
    if idempotency_key is not None or (runner := autocommit_runner(model, using)) is None:
        return NotImplemented
    account = runner.lock_and_add(pk, amount, wait="nowait" if nowait else "queue")
    return NotImplemented if account is None else account


def withdraw(model: type[AbstractBaseAccount], pk: object, amount: Decimal, **options: Any) -> Any:
    """``Account.withdraw``, by the same statement; the method raises the error for an uncovered amount."""
    return deposit(model, pk, -amount, **options)


def try_deposit(account: AbstractBaseAccount, amount: Decimal, *, idempotency_key: str | None) -> Any:
    """``account.try_deposit``: the guarded UPDATE and the entry in one statement."""
    runner = autocommit_runner(type(account), str(account._state.db)) if idempotency_key is None else None
    if runner is None:
        return NotImplemented
    try:
        written = runner.change(account, amount)
    except AccountError:
        return NotImplemented  # the method finds out whether the instance is outdated or the amount not covered
    if not written:
        account.raise_if_deleted()
    return written


def try_withdraw(account: AbstractBaseAccount, amount: Decimal, *, idempotency_key: str | None) -> Any:
    """``account.try_withdraw``; a withdrawal that this instance does not cover is left to the method."""
    return try_deposit(account, -amount, idempotency_key=idempotency_key)


METHODS = (deposit, withdraw, try_deposit, try_withdraw)
"""The counterparts of the account's methods of the same name."""
