"""Latencies in buckets that grow with the value: constant memory, however long the run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Histogram"]

_BITS = 6
"""Each power of two is cut into 2**6 buckets: one is 1/64 of its value wide, its middle at most 0.8 % off."""


@dataclass(slots=True)
class Histogram:
    """Counts of whole numbers from zero (nanoseconds, say); percentiles are within 0.8 % of the exact ones."""

    counts: Counter[int] = field(default_factory=Counter)
    """How many values fell into each bucket; at most 64 buckets for each power of two."""
    largest: int = 0
    """The largest value, exactly."""

    def record(self, value: int) -> None:
        """Count one value, which must not be negative."""
        # The leading bits are the bucket, the rest is cut off: a logarithmic scale without a logarithm.
        shift = value.bit_length() - _BITS - 1
        self.counts[value if shift <= 0 else (shift << _BITS) + (value >> shift)] += 1
        if value > self.largest:
            self.largest = value

    @property
    def total(self) -> int:
        """How many values were counted."""
        return self.counts.total()

    def percentile(self, percent: float) -> int | None:
        """Return the value that ``percent`` of 100 values do not exceed (nearest rank); None without values."""
        rank = max(1, math.ceil(self.total * percent / 100))
        for bucket in sorted(self.counts):
            rank -= self.counts[bucket]
            if rank <= 0:
                shift = (bucket >> _BITS) - 1
                middle = bucket if shift <= 0 else ((bucket - (shift << _BITS)) << shift) + (1 << shift >> 1)
                return min(middle, self.largest)
        return None

    def milliseconds(self, percent: float) -> float | None:
        """Return the `percentile` of nanoseconds in milliseconds."""
        nanoseconds = self.percentile(percent)
        return None if nanoseconds is None else nanoseconds / 1e6

    @classmethod
    def merge(cls, parts: Iterable[Histogram]) -> Histogram:
        """Return one histogram of all values of the parts."""
        whole = cls()
        for part in parts:
            whole.counts.update(part.counts)
            whole.largest = max(whole.largest, part.largest)
        return whole
