"""Methods of this package: those of the account, and every strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from accounts.models import Account
from accounts.strategies import STRATEGIES
from benchmarks.deposit.methods import DepositMethod, DepositWorker
from benchmarks.deposit.pgbench import BATCH_SIZE
from benchmarks.deposit.rows import AMOUNT
from django_lockstep.locking.retry import retrying

__all__ = ["METHODS"]


@contextmanager
def pessimistic(state: DepositWorker) -> Iterator[Callable[[Any], object]]:
    """Call ``Account.deposit``."""
    yield partial(_called, Account.deposit)


def _called(method: Callable[[Any, Any], object], account: int) -> object:
    return method(account, AMOUNT)


@contextmanager
def optimistic(state: DepositWorker) -> Iterator[Callable[[Any], object]]:
    """Read the account and call ``try_deposit``, until it returns True."""

    def deposit(account: int) -> object:
        while not Account.objects.get(pk=account).try_deposit(AMOUNT):
            state.retries += 1
        return True

    yield deposit


@contextmanager
def optimistic_in_hand(state: DepositWorker) -> Iterator[Callable[[Any], object]]:
    """Call ``try_deposit`` on an instance that the worker keeps, of an account that only it writes: no conflicts."""
    # Every n-th account is this worker's: no other one writes it.
    mine = range(state.worker + 1, state.rows + 1, state.workers)
    accounts = Account.objects.in_bulk([*mine, state.rows + 1])

    def deposit(account: int) -> object:
        chosen = (
            accounts.get(account) if account > state.rows else accounts[mine[account * len(mine) // (state.rows + 1)]]
        )
        while chosen is not None and not chosen.try_deposit(AMOUNT):
            state.retries += 1
            chosen.refresh_from_db()
        return chosen

    yield deposit


@contextmanager
def batch(state: DepositWorker) -> Iterator[Callable[[Any], object]]:
    """Call ``Account.apply_many`` with a list of accounts."""
    yield _apply_many


def _apply_many(accounts: list[int]) -> object:
    return Account.apply_many([(account, AMOUNT) for account in accounts])


def strategy(name: str) -> Callable[[DepositWorker], Any]:
    """Return the method that calls the strategy of this name, and counts its retries."""

    @contextmanager
    def way(state: DepositWorker) -> Iterator[Callable[[Any], object]]:
        def note(**_: object) -> None:
            state.retries += 1

        # The signal of the library's own retries: a strategy's result does not tell of them.
        retrying.connect(note)
        try:
            yield partial(_called, STRATEGIES[name].deposit)
        finally:
            retrying.disconnect(note)

    return way


METHODS = {
    method.name: method
    for method in (
        DepositMethod(name="account:deposit", open=pessimistic),
        DepositMethod(name="account:apply_many", open=batch, size=BATCH_SIZE),
        DepositMethod(name="account:try_deposit", open=optimistic),
        DepositMethod(name="account:try_deposit-in-hand", open=optimistic_in_hand, own_rows=True),
        *(DepositMethod(name=f"strategy:{name}", open=strategy(name)) for name in STRATEGIES),
    )
}
