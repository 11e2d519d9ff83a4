"""Methods of depositing from Python, and the load that worker processes run with one."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

from django_lockstep.lab.simulator.tally import LoadOperation

Deposit = Callable[[Any], object]
"""Deposits into an account by its number, or into a list of accounts."""


@dataclass(slots=True, kw_only=True)
class DepositWorker:
    """One worker: its deposits, and what it has counted."""

    worker: int
    """Its number, from 0."""
    workers: int
    """How many there are."""
    rows: int
    """Accounts 1 to ``rows`` are drawn from evenly."""
    size: int
    """Deposits in one call."""
    conflicts: int = 0
    """Retries so far; the method counts them."""
    deadlocks: int = 0
    refusals: tuple[type[Exception], ...] = ()
    deposit: Deposit = field(init=False)
    """What the method opened."""
    draws: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.draws = random.Random(self.worker)  # noqa: S311 - no secret

    def next_operation(self) -> LoadOperation:
        """Return the next deposit, or batch of them."""
        # Not randint(), which takes several times as long and would count as the client's time.
        drawn = [1 + int(self.draws.random() * self.rows) for _ in range(self.size)]
        return LoadOperation(perform=partial(self.deposit, drawn if self.size > 1 else drawn[0]), changes=())


@dataclass(frozen=True, slots=True, kw_only=True)
class DepositMethod:
    """One method of depositing."""

    name: str
    """The name in reports."""
    open: Callable[[DepositWorker], AbstractContextManager[Deposit]]
    """Context manager of the function that deposits."""
    size: int = 1
    """Deposits in one call; if more than one, the call takes a list."""
    with_entries: bool = True
    """Whether it writes entries."""
    own_rows: bool = False
    """Whether each worker needs a row of its own."""
    package: str | None = None
    """The package that it needs besides requirements.txt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepositLoad:
    """The load of all workers of a run; picklable, because it names the method instead of holding it."""

    module: str
    """The module, with ``METHODS``."""
    method: str
    """The method's name in it."""
    rows: int
    """Accounts to draw from."""
    workers: int
    """Workers that draw."""

    @contextlib.contextmanager
    def client(self, worker: int) -> Iterator[DepositWorker]:
        """Yield this worker's client, connected and warmed up on an account that the check ignores."""
        method: DepositMethod = import_module(self.module).METHODS[self.method]
        state = DepositWorker(worker=worker, workers=self.workers, rows=self.rows, size=method.size)
        with method.open(state) as state.deposit:
            # Thrice: what is prepared, cached or planned on first use is so by then.
            for _ in range(3):
                state.deposit(self.rows + 1 if method.size == 1 else [self.rows + 1] * method.size)
            # Warm-up may have met conflicts on its one account.
            state.conflicts = 0
            yield state


def stateless(deposit: Deposit) -> Callable[[DepositWorker], AbstractContextManager[Deposit]]:
    """Return what opens a method that keeps nothing from one deposit to the next."""
    return lambda state: contextlib.nullcontext(deposit)
