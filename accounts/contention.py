"""Recent conflict rates of rows, kept in each process: the strategy `adaptive` chooses between two locks by them."""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from collections.abc import Hashable


class Contention:
    """For each recently written row, the share of recent optimistic attempts that met a conflict.

    An exponentially weighted moving average: the newest attempt counts ``weight``, all earlier ones together the rest.
    Each process keeps its own, without a query. It is only a hint: a wrong estimate costs time, never correctness.
    """

    threshold = 0.3  # the conflict rate above which a row counts as contended
    weight = 0.2  # how much the newest attempt counts
    probe = 0.02  # the share of attempts on a contended row that are optimistic: only they show that it calmed down
    rows = 10_000  # how many are remembered; the one that was written longest ago is dropped first

    def __init__(self) -> None:
        self._shares: OrderedDict[Hashable, float] = OrderedDict()
        self._lock = threading.Lock()

    def prefers_lock(self, row: Hashable) -> bool:
        """Whether the next attempt on this row should take a lock first."""
        contended = self._shares.get(row, 0.0) > self.threshold
        # Random, so that the processes do not probe the same row at the same time.
        return contended and random.random() >= self.probe  # noqa: S311 - no secret

    def record(self, row: Hashable, *, conflict: bool) -> None:
        """Update the row's conflict rate with the result of an optimistic attempt."""
        # Without the lock: one lookup is atomic in CPython.
        before = self._shares.get(row, 0.0)
        if not before and not conflict:  # rows without conflicts need no entry
            return
        with self._lock:
            self._shares[row] = before * (1 - self.weight) + conflict * self.weight
            self._shares.move_to_end(row)
            if len(self._shares) > self.rows:
                self._shares.popitem(last=False)

    def clear(self) -> None:
        """Drop all rates, for runs that must be repeatable."""
        with self._lock:
            self._shares.clear()


contention = Contention()  # of this process, for all account models
