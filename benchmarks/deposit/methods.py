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

__all__ = ["DepositLoad", "DepositMethod", "DepositWorker"]


@dataclass(slots=True, kw_only=True)
class DepositWorker:
    """The state of one worker."""

    worker: int
    """Its number, from 0."""
    workers: int
    """How many there are."""
    rows: int
    """Accounts 1 to ``rows`` are drawn from evenly."""
    retries: int = 0
    """Retries so far; the method counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepositMethod:
    """One method of depositing."""

    name: str
    """The name in reports."""
    open: Callable[[DepositWorker], AbstractContextManager[Callable[[Any], object]]]
    """Context manager of the function that deposits into an account, or a list of accounts, by number."""
    size: int = 1
    """Deposits in one call; if more than one, the call takes a list."""
    with_entries: bool = True
    """Whether it writes entries."""
    own_rows: bool = False
    """Whether each worker needs a row of its own."""


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
    def client(self, worker: int) -> Iterator[DepositClient]:
        """Yield this worker's client, connected and warmed up on an account that the check ignores."""
        method: DepositMethod = import_module(self.module).METHODS[self.method]
        state = DepositWorker(worker=worker, workers=self.workers, rows=self.rows)
        with method.open(state) as deposit:
            # Thrice: what is prepared, cached or planned on first use is so by then.
            for _ in range(3):
                deposit(self.rows + 1 if method.size == 1 else [self.rows + 1] * method.size)
            # Warm-up may have met conflicts on its one account.
            state.retries = 0
            yield DepositClient(state=state, deposit=deposit, size=method.size, draws=random.Random(worker))  # noqa: S311 - no secret


@dataclass(slots=True, kw_only=True)
class DepositClient:
    """One worker's deposits."""

    state: DepositWorker
    deposit: Callable[[Any], object]
    size: int
    draws: random.Random
    refusals: tuple[type[Exception], ...] = ()
    deadlocks: int = field(default=0)

    @property
    def conflicts(self) -> int:
        """Attempts that were repeated."""
        return self.state.retries

    @conflicts.setter
    def conflicts(self, value: int) -> None:
        self.state.retries = value

    def next_operation(self) -> LoadOperation:
        """Return the next deposit, or batch of them."""
        if self.size == 1:
            # Not randint(), which takes several times as long and would count as the client's time.
            what: Any = 1 + int(self.draws.random() * self.state.rows)
        else:
            what = [1 + int(self.draws.random() * self.state.rows) for _ in range(self.size)]
        return LoadOperation(perform=partial(self.deposit, what), changes=())
