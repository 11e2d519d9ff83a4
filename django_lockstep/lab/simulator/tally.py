"""What came of operations, counted: the size of a tally does not depend on how many there were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.simulator.histogram import Histogram

__all__ = ["Operation", "Tally", "Told", "kind_of"]

_DEADLOCK = "40P01"
_LONGEST = 200
"""Characters of an error's message that are kept."""


class Operation(NamedTuple):
    """Something to do once; one is made for each operation, and a tuple is made fastest."""

    perform: Callable[[], object]
    """Does it, or raises."""
    changes: tuple[tuple[Hashable, Decimal], ...]
    """The accounts that it changes, with signed amounts."""


@dataclass(slots=True)
class Told:
    """What a worker was told had succeeded on one account."""

    count: int = 0
    """Changes."""
    total: Decimal = Decimal(0)
    """Their signed sum."""

    def add(self, *, count: int, total: Decimal) -> None:
        """Count more of them."""
        self.count += count
        self.total += total


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of one worker's operations, or of several workers'."""

    succeeded: int = 0
    """Operations that returned."""
    refused: int = 0
    """Operations that were refused for a good reason."""
    errors: Counter[str] = field(default_factory=Counter)
    """Operations that failed, by the kind of error."""
    examples: dict[str, str] = field(default_factory=dict)
    """The first message of each kind of error."""
    in_doubt: int = 0
    """Errors after which nobody knows whether the operation was committed."""
    conflicts: int = 0
    """Attempts repeated because somebody else was faster."""
    retried_deadlocks: int = 0
    """Attempts repeated because of a deadlock."""
    failed_deadlocks: int = 0
    """Operations that failed with a deadlock."""
    latencies: Histogram = field(default_factory=Histogram)
    """Nanoseconds from call to answer, of all operations."""
    started: int = 0
    """``time.perf_counter_ns`` at the start, which all processes share."""
    ended: int = 0
    """The same after the last operation."""
    told: dict[Hashable, Told] = field(default_factory=dict)
    """The changes that succeeded, by account."""

    @property
    def answered(self) -> int:
        """Operations that got an answer: succeeded or refused."""
        return self.succeeded + self.refused

    @property
    def failed(self) -> int:
        """Operations that raised another error."""
        return self.errors.total()

    def succeed(self, operation: Operation) -> None:
        """Count a success."""
        self.succeeded += 1
        for account, amount in operation.changes:
            if (told := self.told.get(account)) is None:
                told = self.told[account] = Told()
            told.count += 1
            told.total += amount

    def settle(self, done: Iterable[tuple[Operation | None, int]]) -> None:
        """Count operations with the nanoseconds that they took; None for one that did not succeed."""
        for operation, nanoseconds in done:
            self.latencies.record(nanoseconds)
            if operation is not None:
                self.succeed(operation)

    def fail(self, error: Exception) -> None:
        """Count an error."""
        kind = kind_of(error)
        self.errors[kind] += 1
        self.examples.setdefault(kind, str(error).partition("\n")[0][:_LONGEST])
        self.failed_deadlocks += sqlstate_of(error) == _DEADLOCK

    @classmethod
    def merged(cls, parts: Iterable[Tally]) -> Tally:
        """Return what several workers did at the same time; there must be one part at least."""
        parts = list(parts)
        return cls(started=min(part.started for part in parts), ended=max(part.ended for part in parts))._with(parts)

    @classmethod
    def joined(cls, parts: Iterable[Tally]) -> Tally:
        """Return what was done in several laps, the time between them left out; there must be one part at least."""
        parts = list(parts)
        started = parts[0].started
        return cls(started=started, ended=started + sum(part.ended - part.started for part in parts))._with(parts)

    def _with(self, parts: Sequence[Tally]) -> Tally:
        self.latencies = Histogram.merged(part.latencies for part in parts)
        for part in parts:
            for name in ("succeeded", "refused", "in_doubt", "conflicts", "retried_deadlocks", "failed_deadlocks"):
                setattr(self, name, getattr(self, name) + getattr(part, name))
            self.errors.update(part.errors)
            self.examples = {**part.examples, **self.examples}
            for account, told in part.told.items():
                self.told.setdefault(account, Told()).add(count=told.count, total=told.total)
        return self


def kind_of(error: Exception) -> str:
    """Return what an error is counted as: its class, with the SQLSTATE where there is one."""
    sqlstate = sqlstate_of(error)
    return type(error).__name__ + (f" ({sqlstate})" if sqlstate else "")
