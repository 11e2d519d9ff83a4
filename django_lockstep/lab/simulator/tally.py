"""Counts of what came of operations, in a size that does not depend on how many there were."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.wording import error_label

_DEADLOCK = "40P01"
_LONGEST = 200
"""Characters of an error's message that are kept."""
_BITS = 6
"""Each power of two is cut into 2**6 buckets: one is 1/64 of its value wide, its middle at most 0.8 % off."""


@dataclass(slots=True)
class Histogram:
    """Counts of whole numbers from zero (nanoseconds, say); percentiles are within 0.8 % of the exact ones."""

    counts: Counter[int] = field(default_factory=Counter)
    """How many values fell into each bucket, by its least value; at most 64 buckets for each power of two."""
    largest: int = 0
    """The largest value, exactly."""

    def record(self, value: int) -> None:
        """Count one value, which must not be negative."""
        # The leading bits are the bucket, the rest is cut off: a logarithmic scale without a logarithm.
        rest = max(0, value.bit_length() - _BITS - 1)
        self.counts[value >> rest << rest] += 1
        self.largest = max(self.largest, value)

    def percentile(self, percent: float) -> int | None:
        """Return the value that ``percent`` of 100 values do not exceed (nearest rank); None without values."""
        rank = max(1, math.ceil(self.counts.total() * percent / 100))
        for least in sorted(self.counts):
            rank -= self.counts[least]
            if rank <= 0:
                middle = least + (1 << max(0, least.bit_length() - _BITS - 1) >> 1)
                return min(middle, self.largest)
        return None

    def milliseconds(self, percent: float) -> float | None:
        """Return the `percentile` of nanoseconds in milliseconds."""
        nanoseconds = self.percentile(percent)
        return None if nanoseconds is None else nanoseconds / 1e6

    def add(self, values: Histogram) -> None:
        """Count the values of another one, too."""
        self.counts.update(values.counts)
        self.largest = max(self.largest, values.largest)


class LoadOperation(NamedTuple):
    """Something to do once. A tuple, because one is made for each operation and nothing is made faster."""

    perform: Callable[[], object]
    """Performs the operation, or raises."""
    changes: tuple[tuple[Hashable, Decimal], ...]
    """The accounts that it changes, with signed amounts."""


@dataclass(slots=True)
class Acknowledged:
    """The changes of one account that succeeded as far as the workers know."""

    count: int = 0
    """How many."""
    total: Decimal = Decimal(0)
    """Their signed sum."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of one worker's operations, or of several workers'."""

    succeeded: int = 0
    """Operations that returned."""
    refused: int = 0
    """Operations that were correctly refused."""
    errors: Counter[str] = field(default_factory=Counter)
    """Operations that failed, by the kind of error."""
    examples: dict[str, str] = field(default_factory=dict)
    """The first message of each kind of error."""
    in_doubt: int = 0
    """Errors after which it is unknown whether the operation was committed."""
    conflicts: int = 0
    """Attempts repeated because of a conflict with another worker."""
    retried_deadlocks: int = 0
    """Attempts repeated because of a deadlock."""
    failed_deadlocks: int = 0
    """Operations that failed with a deadlock."""
    latencies: Histogram = field(default_factory=Histogram)
    """Nanoseconds from call to answer, of all operations."""
    started: int = 0
    """Nanoseconds at the start, by a clock that all workers share."""
    ended: int = 0
    """The same after the last operation."""
    acknowledged: dict[Hashable, Acknowledged] = field(default_factory=dict)
    """The changes that succeeded, by account."""

    @property
    def answered(self) -> int:
        """Operations that succeeded or were refused."""
        return self.succeeded + self.refused

    @property
    def failed(self) -> int:
        """Operations that raised another error."""
        return self.errors.total()

    @property
    def operations(self) -> int:
        """Operations that were tried."""
        return self.answered + self.failed

    @property
    def retries(self) -> int:
        """Attempts that were repeated."""
        return self.conflicts + self.retried_deadlocks

    @property
    def deadlocks(self) -> int:
        """Attempts that ended in a deadlock, repeated or not."""
        return self.retried_deadlocks + self.failed_deadlocks

    @property
    def retries_per_operation(self) -> float:
        """Repeated attempts for each operation."""
        return self.retries / self.operations if self.operations else 0.0

    @property
    def seconds(self) -> float:
        """From the start to the end."""
        return (self.ended - self.started) / 1e9

    @property
    def rate(self) -> float:
        """Operations per second that were answered."""
        return self.answered / self.seconds if self.seconds else 0.0

    def succeed(self, operation: LoadOperation) -> None:
        """Count a success, and its changes as acknowledged."""
        self.succeeded += 1
        for account, amount in operation.changes:
            # Not setdefault(), which would make an object for each operation.
            if (acknowledged := self.acknowledged.get(account)) is None:
                acknowledged = self.acknowledged[account] = Acknowledged()
            acknowledged.count += 1
            acknowledged.total += amount

    def record(self, done: Iterable[tuple[LoadOperation | None, int]]) -> None:
        """Count operations with the nanoseconds that they took; None for one that did not succeed."""
        for operation, nanoseconds in done:
            self.latencies.record(nanoseconds)
            if operation is not None:
                self.succeed(operation)

    def fail(self, error: Exception) -> None:
        """Count an error under its class, with the SQLSTATE if it has one; keep the first message of each kind."""
        kind = error_label(error)
        self.errors[kind] += 1
        # The first line only: the others quote values of rows.
        self.examples.setdefault(kind, str(error).partition("\n")[0][:_LONGEST])
        self.failed_deadlocks += sqlstate_of(error) == _DEADLOCK

    @classmethod
    def merge(cls, tallies: Iterable[Tally | None]) -> Tally:
        """Return what several workers did at the same time; None is a worker that did not finish."""
        parts = [tally for tally in tallies if tally]
        started = min((part.started for part in parts), default=0)
        ended = max((part.ended for part in parts), default=0)
        return cls(started=started, ended=ended)._add(parts)

    @classmethod
    def concatenate(cls, tallies: Iterable[Tally | None]) -> Tally:
        """Return what was done in several rounds, without the time between them; None is one that did not end."""
        parts = [tally for tally in tallies if tally]
        # The rounds of other strategies lie between these: only the time of its own rounds counts.
        return cls(ended=sum(part.ended - part.started for part in parts))._add(parts)

    def _add(self, parts: Sequence[Tally]) -> Tally:
        for part in parts:
            self.latencies.add(part.latencies)
            for name in ("succeeded", "refused", "in_doubt", "conflicts", "retried_deadlocks", "failed_deadlocks"):
                setattr(self, name, getattr(self, name) + getattr(part, name))
            self.errors.update(part.errors)
            self.examples = {**part.examples, **self.examples}
            for account, acknowledged in part.acknowledged.items():
                whole = self.acknowledged.setdefault(account, Acknowledged())
                whole.count += acknowledged.count
                whole.total += acknowledged.total
        return self
