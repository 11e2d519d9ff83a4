"""Recent conflict rates of rows, kept in each process: the strategy `adaptive` chooses between two locks by them."""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from collections.abc import Hashable

_THRESHOLD = 0.3  # the conflict rate above which a row counts as contended
_WEIGHT = 0.2  # how much the newest attempt counts
_PROBE = 0.02  # the share of attempts on a contended row that are optimistic: only they show that contention has ended
_ROWS = 10_000  # rows that are remembered; the one that was written longest ago is dropped first


class Contention:
    """For each recently written row, the share of recent optimistic attempts that met a conflict.

    An exponentially weighted moving average: all earlier attempts together count what the newest leaves.
    Each process keeps its own, without a query. It is only a hint: a wrong estimate costs time, never correctness.
    """

    def __init__(self) -> None:
        self._shares: OrderedDict[Hashable, float] = OrderedDict()
        self._lock = threading.Lock()

    def prefers_lock(self, row: Hashable) -> bool:
        """Whether the next attempt on this row should take a lock first."""
        contended = self._shares.get(row, 0.0) > _THRESHOLD
        # Random, so that the processes do not probe the same row at the same time.
        return contended and random.random() >= _PROBE  # noqa: S311 - no secret

    def record(self, row: Hashable, *, conflict: bool) -> None:
        """Update the row's conflict rate with the result of an optimistic attempt."""
        # Without the lock: one lookup is atomic in CPython.
        before = self._shares.get(row, 0.0)
        if not before and not conflict:  # rows without conflicts need no entry
            return
        with self._lock:
            self._shares[row] = before * (1 - _WEIGHT) + conflict * _WEIGHT
            self._shares.move_to_end(row)
            if len(self._shares) > _ROWS:
                self._shares.popitem(last=False)

    def clear(self) -> None:
        """Drop all rates, for runs that must be repeatable."""
        with self._lock:
            self._shares.clear()


contention = Contention()
"""The rates of this process, for all account models."""
