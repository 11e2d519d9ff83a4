"""The compiled counterparts of the account's methods and of the strategies, where no transaction is open.

Each function takes the arguments of its method, does one attempt with the same lock and the same version check, and
returns ``NotImplemented`` for a change inside a transaction, whose locks belong to the caller, and for a statement that
read or wrote nothing, so that the method raises the right error. The method's decorator retries.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from django.db import transaction

from accounts.abstract import AbstractBaseAccount
from accounts.binding import Strategy
from accounts.contention import contention
from accounts.contrib.compiled.runner import StatementRunner, autocommit_runner
from accounts.contrib.compiled.statements import WaitMode
from accounts.errors import AccountError
from accounts.strategies import Advisory
from django_lockstep.errors import StaleVersionError
from django_lockstep.locking.retry import report_conflict
from django_lockstep.locking.transactions import isolated_transaction

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
    """``Account.deposit``: lock, add and insert the entry in one statement; waiting sessions are served in order.

    With an idempotency key, which is looked up under the lock, a few statements in one transaction.
    """
    runner = autocommit_runner(model, using)
    if runner is None:
        return NotImplemented
    wait: WaitMode = "nowait" if nowait else "queue"
    if idempotency_key is None:
        account = runner.lock_and_add(pk, amount, wait=wait)
    else:
        with transaction.atomic(using=using):
            account = runner.lock(pk, wait=wait)
            if account is not None and not account.replay_idempotent(amount, idempotency_key):
                runner.change(account, amount, compare=False, idempotency_key=idempotency_key)
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
        return _write_balance(runner, runner.lock(pk, wait=wait), amount)


@with_runner
def optimistic(runner: StatementRunner, strategy: Strategy, pk: object, amount: Decimal) -> Written:
    """SELECT, UPDATE with the entry where the version is the same."""
    account = runner.read(pk)
    if account is not None and not runner.change(account, amount):
        # Raised, not None: the method would read the row and try again without counting the conflict.
        raise StaleVersionError(model=runner.model, pk=pk, expected=account.version)
    return account


@with_runner
def adaptive(runner: StatementRunner, strategy: Strategy, pk: object, amount: Decimal) -> Written:
    """As `optimistic` on a row without recent conflicts; otherwise lock, UPDATE and entry in one statement."""
    row = (runner.model, runner.using, pk)
    if not contention.prefers_lock(row):
        account = runner.read(pk)
        if account is None:
            return None
        written = runner.change(account, amount)
        contention.record(row, conflict=not written)
        if written:
            return account
        report_conflict(StaleVersionError(model=runner.model, pk=pk, expected=account.version), attempt=1, wait=0.0)
    return runner.lock_and_add(pk, amount)


@with_runner
def conditional_update(runner: StatementRunner, strategy: Strategy, pk: object, amount: Decimal) -> Written:
    """UPDATE with the entry, behind an advisory lock that is granted in order of arrival."""
    # The statement cannot conflict: after a wait the server computes with the newest balance.
    return runner.add(pk, amount)


@with_runner
def serializable(runner: StatementRunner, strategy: Strategy, pk: object, amount: Decimal) -> Written:
    """BEGIN, SET TRANSACTION, SELECT, UPDATE with the entry, COMMIT."""
    with isolated_transaction(isolation_level="serializable", using=runner.using):
        return _write_balance(runner, runner.read(pk), amount)


@with_runner
def advisory(runner: StatementRunner, strategy: Advisory, pk: object, amount: Decimal) -> Written:
    """BEGIN, the strategy's advisory lock, SELECT, UPDATE with the entry, COMMIT."""
    with transaction.atomic(using=runner.using):
        strategy.lock_key(pk)
        return _write_balance(runner, runner.read(pk), amount)


def _write_balance(runner: StatementRunner, account: Written, amount: Decimal) -> Written:
    """Write the balance computed from what was read, with its entry, without comparing versions."""
    if account is not None:
        runner.change(account, amount, compare=False)
    return account


METHODS = (deposit, withdraw, try_deposit, try_withdraw)
"""The counterparts of the account's methods of the same name."""
STRATEGIES: dict[str, Callable[..., Any]] = {
    "pessimistic": pessimistic,
    "pessimistic_nowait": functools.partial(pessimistic, wait="nowait"),
    "optimistic": optimistic,
    "adaptive": adaptive,
    "conditional_update": conditional_update,
    "serializable": serializable,
    "advisory": advisory,
}
"""The counterparts of the strategies by name."""
