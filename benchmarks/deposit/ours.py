"""Ways of this package: the methods of the account, and every strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from accounts.models import Account
from accounts.strategies import STRATEGIES
from benchmarks.deposit.books import AMOUNT
from benchmarks.deposit.pgbench import BATCH_SIZE
from benchmarks.deposit.ways import Part, Way
from django_lockstep.locking.retry import retrying

__all__ = ["WAYS"]


@contextmanager
def pessimistic(part: Part) -> Iterator[Callable[[Any], object]]:
    """Call ``Account.deposit``."""
    yield partial(_called, Account.deposit)


def _called(method: Callable[[Any, Any], object], account: int) -> object:
    return method(account, AMOUNT)


@contextmanager
def optimistic(part: Part) -> Iterator[Callable[[Any], object]]:
    """Read the account and call ``try_deposit``, both again until it says True."""

    def deposit(account: int) -> object:
        while not Account.objects.get(pk=account).try_deposit(AMOUNT):
            part.retries += 1
        return True

    yield deposit


@contextmanager
def optimistic_in_hand(part: Part) -> Iterator[Callable[[Any], object]]:
    """Call ``try_deposit`` on an account read long before, of the worker's own: there is no conflict to find."""
    mine = range(part.worker + 1, part.rows + 1, part.workers)
    accounts = Account.objects.in_bulk([*mine, part.rows + 1])

    def deposit(account: int) -> object:
        chosen = (
            accounts.get(account) if account > part.rows else accounts[mine[account * len(mine) // (part.rows + 1)]]
        )
        while chosen is not None and not chosen.try_deposit(AMOUNT):
            part.retries += 1
            chosen.refresh_from_db()
        return chosen

    yield deposit


@contextmanager
def batch(part: Part) -> Iterator[Callable[[Any], object]]:
    """Call ``Account.apply_many`` with a list of accounts."""
    yield _apply_many


def _apply_many(accounts: list[int]) -> object:
    return Account.apply_many([(account, AMOUNT) for account in accounts])


def strategy(name: str) -> Callable[[Part], Any]:
    """Return the way of the strategy of this name, with the retries that it tells of."""

    @contextmanager
    def way(part: Part) -> Iterator[Callable[[Any], object]]:
        def note(**_: object) -> None:
            part.retries += 1

        retrying.connect(note)
        try:
            yield partial(_called, STRATEGIES[name].deposit)
        finally:
            retrying.disconnect(note)

    return way


WAYS = {
    way.name: way
    for way in (
        Way(name="account:deposit", open=pessimistic),
        Way(name="account:apply_many", open=batch, size=BATCH_SIZE),
        Way(name="account:try_deposit", open=optimistic),
        Way(name="account:try_deposit-in-hand", open=optimistic_in_hand, own_rows=True),
        *(Way(name=f"strategy:{name}", open=strategy(name)) for name in STRATEGIES),
    )
}
"""All of them, by name."""
