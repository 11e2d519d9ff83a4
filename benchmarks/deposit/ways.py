"""What a way to deposit from Python is, and the load of worker processes that goes it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

from accounts.models import Account, Entry
from benchmarks.deposit.books import open_books
from django_lockstep.lab.simulator.tally import Operation

__all__ = ["Part", "Way", "WayLoad"]


@dataclass(slots=True, kw_only=True)
class Part:
    """What one worker knows."""

    worker: int
    """Its number, from 0."""
    workers: int
    """How many there are."""
    rows: int
    """Accounts 1 to ``rows`` are drawn from evenly."""
    retries: int = 0
    """Attempts that it had to repeat so far; the way counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to deposit."""

    name: str
    """What reports call it."""
    open: Callable[[Part], AbstractContextManager[Callable[[Any], object]]]
    """Gives, for the length of a block, what deposits into the account (the list of accounts) of this number."""
    size: int = 1
    """Deposits in one call; more than one: the call takes a list."""
    with_entries: bool = True
    """Whether it writes entries."""
    own_rows: bool = False
    """Whether each worker needs a row of its own."""
    open_books: Callable[[int], None] = open_books
    """Makes so many accounts afresh, and one more."""
    settle: Callable[[], None] | None = None
    """Does what is still to be done after the run, before the check."""
    tables: tuple[Any, Any] = (Account, Entry)
    """The models of the rows with balances, and of their entries."""
    slots: int = 1
    """Rows with balances of each account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayLoad:
    """What all workers of a run do; picklable, because it names the way by its module and place."""

    module: str
    """The module, with ``WAYS``."""
    way: str
    """The way's name in it."""
    rows: int
    """Accounts to draw from."""
    workers: int
    """Workers that draw."""

    @contextlib.contextmanager
    def client(self, worker: int) -> Iterator[WayClient]:
        """Return this worker's part, connected and warmed up on an account that nobody counts."""
        way: Way = import_module(self.module).WAYS[self.way]
        part = Part(worker=worker, workers=self.workers, rows=self.rows)
        with way.open(part) as deposit:
            for _ in range(3):
                deposit(self.rows + 1 if way.size == 1 else [self.rows + 1] * way.size)
            part.retries = 0
            yield WayClient(part=part, deposit=deposit, size=way.size, draws=random.Random(worker))  # noqa: S311 - no secret


@dataclass(slots=True, kw_only=True)
class WayClient:
    """One worker's deposits."""

    part: Part
    deposit: Callable[[Any], object]
    size: int
    draws: random.Random
    refusals: tuple[type[Exception], ...] = ()
    deadlocks: int = field(default=0)

    @property
    def conflicts(self) -> int:
        """Attempts that were repeated."""
        return self.part.retries

    @conflicts.setter
    def conflicts(self, value: int) -> None:
        self.part.retries = value

    def next_operation(self) -> Operation:
        """Return the next deposit, or batch of them."""
        if self.size == 1:
            what: Any = 1 + int(self.draws.random() * self.part.rows)
        else:
            what = [1 + int(self.draws.random() * self.part.rows) for _ in range(self.size)]
        return Operation(perform=partial(self.deposit, what), changes=())
