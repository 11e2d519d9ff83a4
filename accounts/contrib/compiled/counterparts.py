"""The compiled counterparts of the account's methods and of the strategies, where no transaction is open.

Each function takes the arguments of its method, does one attempt with the same lock and the same version check, and
returns ``NotImplemented`` for a change inside a transaction, whose locks belong to the caller, for an idempotency key,
which is looked up first, and for a statement that read or wrote nothing, so that the method raises the right error. The
method's decorator retries.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from django.db import transaction

from accounts.abstract import AbstractBaseAccount
from accounts.binding import Strategy
from accounts.contrib.compiled.runner import StatementRunner, autocommit_runner
from accounts.contrib.compiled.statements import WaitMode
from accounts.errors import AccountError
from django_lockstep.errors import StaleVersionError

__all__ = ["METHODS", "STRATEGIES"]


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


Written = AbstractBaseAccount | None
"""The account as it was written; None where nothing was."""


def with_runner(attempt: Callable[..., Written]) -> Callable[..., Any]:
    """Return the counterpart that makes this attempt; where it writes nothing, the strategy's method runs."""

    @functools.wraps(attempt)
    def run(strategy: Strategy, pk: object, amount: Decimal, **options: Any) -> Any:
        runner = autocommit_runner(strategy.model, strategy.alias)
        account = runner and attempt(runner, strategy, pk, amount, **options)
        return NotImplemented if account is None else account

    return run


@with_runner
def pessimistic(
    runner: StatementRunner, strategy: Strategy, pk: object, amount: Decimal, *, wait: WaitMode = "queue"
) -> Written:
    """BEGIN, SELECT FOR NO KEY UPDATE in the order of arrival or NOWAIT, UPDATE with the entry, COMMIT."""
    # The lock must outlive its statement, so that this needs a transaction; `optimistic` needs none, since its UPDATE
    # with the entry is one statement.
    with transaction.atomic(using=runner.using):
        account = runner.lock(pk, wait=wait)
        if account is not None:
            runner.change(account, amount, compare=False)
    return account


@with_runner
def optimistic(runner: StatementRunner, strategy: Strategy, pk: object, amount: Decimal) -> Written:
    """SELECT, UPDATE with the entry where the version is the same."""
    account = runner.read(pk)
    if account is not None and not runner.change(account, amount):
        # Raised, not None: the method would read the row and try again without counting the conflict.
        raise StaleVersionError(model=runner.model, pk=pk, expected=account.version)
    return account


@with_runner
def conditional_update(runner: StatementRunner, strategy: Strategy, pk: object, amount: Decimal) -> Written:
    """UPDATE with the entry, behind an advisory lock that is granted in order of arrival."""
    # The statement cannot conflict: after a wait the server computes with the newest balance.
    return runner.add(pk, amount)


METHODS = (deposit, withdraw, try_deposit, try_withdraw)
"""The counterparts of the account's methods of the same name."""
STRATEGIES: dict[str, Callable[..., Any]] = {
    "pessimistic": pessimistic,
    "pessimistic_nowait": functools.partial(pessimistic, wait="nowait"),
    "optimistic": optimistic,
    "conditional_update": conditional_update,
}
"""The counterparts of the strategies by name; of the others, the code of the strategy itself is what is measured."""
