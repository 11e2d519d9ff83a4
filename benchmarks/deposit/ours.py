"""Methods of this package: those of the account, and every strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from accounts.engine import use_engine
from accounts.models import Account
from accounts.strategies import STRATEGIES
from benchmarks.deposit.methods import Deposit, DepositMethod, DepositWorker, stateless
from benchmarks.deposit.pgbench import BATCH_SIZE
from benchmarks.deposit.rows import AMOUNT
from django_lockstep.locking.retry import retrying


def deposit_with(method: Callable[[Any, Any], object]) -> Deposit:
    """Return the function that calls the method with an account and the amount."""
    return lambda account: method(account, AMOUNT)


@contextmanager
def plain(state: DepositWorker) -> Iterator[Deposit]:
    """Call ``deposit`` as it stands in the showcase, without the compiled engine."""
    with use_engine("plain"):
        yield deposit_with(Account.deposit)


@contextmanager
def optimistic(state: DepositWorker) -> Iterator[Deposit]:
    """Read the account and call ``try_deposit``, until it returns True."""

    def deposit(account: int) -> object:
        while not Account.objects.get(pk=account).try_deposit(AMOUNT):
            state.conflicts += 1
        return True

    yield deposit


@contextmanager
def optimistic_in_hand(state: DepositWorker) -> Iterator[Deposit]:
    """Call ``try_deposit`` on an instance that the worker keeps, of an account that only it writes: no conflicts."""
    # Every n-th account is this worker's: no other one writes it.
    mine = range(state.worker + 1, state.rows + 1, state.workers)
    accounts = Account.objects.in_bulk([*mine, state.rows + 1])

    def deposit(account: int) -> object:
        chosen = (
            accounts.get(account) if account > state.rows else accounts[mine[account * len(mine) // (state.rows + 1)]]
        )
        while chosen is not None and not chosen.try_deposit(AMOUNT):
            state.conflicts += 1
            chosen.refresh_from_db()
        return chosen

    yield deposit


def apply_many(accounts: list[int]) -> object:
    """Call ``Account.apply_many`` with a list of accounts."""
    return Account.apply_many([(account, AMOUNT) for account in accounts])


def strategy(name: str) -> Callable[[DepositWorker], Any]:
    """Return the method that calls the strategy of this name, and counts its retries."""

    @contextmanager
    def way(state: DepositWorker) -> Iterator[Deposit]:
        def note(**_: object) -> None:
            state.conflicts += 1

        # The signal of the library's own retries: a strategy's result does not tell of them.
        retrying.connect(note)
        try:
            yield deposit_with(STRATEGIES[name].deposit)
        finally:
            retrying.disconnect(note)

    return way


METHODS = {
    method.name: method
    for method in (
        DepositMethod(name="account:deposit", open=stateless(deposit_with(Account.deposit))),
        DepositMethod(name="account:deposit-plain", open=plain),
        DepositMethod(name="account:apply_many", open=stateless(apply_many), size=BATCH_SIZE),
        DepositMethod(name="account:try_deposit", open=optimistic),
        DepositMethod(name="account:try_deposit-in-hand", open=optimistic_in_hand, own_rows=True),
        *(DepositMethod(name=f"strategy:{name}", open=strategy(name)) for name in STRATEGIES),
    )
}
