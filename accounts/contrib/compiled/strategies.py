"""The compiled counterparts of the strategies: one attempt each, with the same lock and the same version check.

Each takes the arguments of its method, and returns ``NotImplemented`` inside a transaction, where the statements are
not available, and where nothing was written, so that the method raises the right error. The method's decorator retries.
"""

from __future__ import annotations

import functools
from decimal import Decimal
from typing import Any

from django.db import transaction

from accounts.abstract import AbstractBaseAccount
from accounts.binding import Strategy
from accounts.contention import contention
from accounts.contrib.compiled.runner import StatementRunner, autocommit_runner
from accounts.contrib.compiled.statements import WaitMode
from accounts.strategies import Advisory
from django_lockstep.errors import StaleVersionError
from django_lockstep.locking.retry import report_conflict
from django_lockstep.locking.transactions import isolated_transaction

__all__ = [
    "adaptive",
    "advisory",
    "conditional_update",
    "optimistic",
    "pessimistic",
    "pessimistic_nowait",
    "serializable",
]


def pessimistic(strategy: Strategy, pk: object, amount: Decimal, *, wait: WaitMode = "queue") -> Any:
    """BEGIN, SELECT FOR NO KEY UPDATE in the order of arrival or NOWAIT, UPDATE with the entry, COMMIT."""
    if (runner := _runner_of(strategy)) is None:
        return NotImplemented
    # The lock must outlive its statement, so that this needs a transaction; `optimistic` needs none, since its UPDATE
    # with the entry is one statement.
    with transaction.atomic(using=runner.using):
        return _write_balance(runner, runner.lock(pk, wait=wait), amount)


pessimistic_nowait = functools.partial(pessimistic, wait="nowait")


def optimistic(strategy: Strategy, pk: object, amount: Decimal) -> Any:
    """SELECT, UPDATE with the entry where the version is the same."""
    if (runner := _runner_of(strategy)) is None or (account := runner.read(pk)) is None:
        return NotImplemented
    if not runner.change(account, amount):
        # Raised, not NotImplemented: the method would read the row and try again without counting the conflict.
        raise StaleVersionError(model=runner.model, pk=pk, expected=account.version)
    return account


def adaptive(strategy: Strategy, pk: object, amount: Decimal) -> Any:
    """As `optimistic` on a row without recent conflicts; otherwise lock, UPDATE and entry in one statement."""
    if (runner := _runner_of(strategy)) is None:
        return NotImplemented
    row = (runner.model, runner.using, pk)
    if not contention.prefers_lock(row):
        account = runner.read(pk)
        if account is None:
            return NotImplemented
        written = runner.change(account, amount)
        contention.record(row, conflict=not written)
        if written:
            return account
        report_conflict(StaleVersionError(model=runner.model, pk=pk, expected=account.version), attempt=1, wait=0.0)
    changed = runner.lock_and_add(pk, amount)
    return NotImplemented if changed is None else changed


def conditional_update(strategy: Strategy, pk: object, amount: Decimal) -> Any:
    """UPDATE with the entry, behind an advisory lock that is granted in order of arrival."""
    runner = _runner_of(strategy)
    # The statement cannot conflict: after a wait the server computes with the newest balance.
    changed = runner and runner.add(pk, amount)
    return NotImplemented if changed is None else changed


def serializable(strategy: Strategy, pk: object, amount: Decimal) -> Any:
    """BEGIN, SET TRANSACTION, SELECT, UPDATE with the entry, COMMIT."""
    if (runner := _runner_of(strategy)) is None:
        return NotImplemented
    with isolated_transaction(isolation_level="serializable", using=runner.using):
        return _write_balance(runner, runner.read(pk), amount)


def advisory(strategy: Advisory, pk: object, amount: Decimal) -> Any:
    """BEGIN, the strategy's advisory lock, SELECT, UPDATE with the entry, COMMIT."""
    if (runner := _runner_of(strategy)) is None:
        return NotImplemented
    with transaction.atomic(using=runner.using):
        strategy.lock_key(pk)
        return _write_balance(runner, runner.read(pk), amount)


def _runner_of(strategy: Strategy) -> StatementRunner | None:
    return autocommit_runner(strategy.model, strategy.alias)


def _write_balance(runner: StatementRunner, account: AbstractBaseAccount | None, amount: Decimal) -> Any:
    """Write the balance computed from what was read, with its entry, without comparing versions."""
    if account is None:
        return NotImplemented
    runner.change(account, amount, compare=False)
    return account
