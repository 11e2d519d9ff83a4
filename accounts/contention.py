"""How often a row met conflicts lately, as one process remembers it: what a choice between ways of locking needs."""

from __future__ import annotations

import random
from collections.abc import Hashable

from accounts.bounded import Bounded

__all__ = ["Contention", "contention"]


class Contention:
    """Remembers, for each of the rows written last, what share of the recent optimistic attempts met a conflict.

    An exponentially weighted mean: each attempt counts for ``weight``, all before it together for the rest. It is kept
    by each process for itself, costs no query, and is only ever a hint: a wrong guess is slower, never wrong.
    """

    def __init__(self, *, threshold: float = 0.3, weight: float = 0.2, probe: float = 0.02, rows: int = 10_000) -> None:
        """Set above which share a row counts as contended, how fast that is learnt and how often it is doubted.

        ``probe`` is the share of the uses of a contended row that are tried optimistically all the same: only they can
        tell that it has calmed down. ``rows`` bounds the memory; the row unused for longest is forgotten first.
        """
        self._threshold = threshold
        self._weight = weight
        self._probe = probe
        self._shares: Bounded[Hashable, float] = Bounded(rows)

    def expected(self, row: Hashable) -> bool:
        """Whether the next attempt on this row is better made with a lock."""
        contended = self._shares.get(row, 0.0) > self._threshold
        return contended and random.random() >= self._probe  # noqa: S311 - no secret

    def note(self, row: Hashable, *, conflict: bool) -> None:
        """Learn how an optimistic attempt ended."""
        before = self._shares.get(row, 0.0)
        if before or conflict:  # calm rows need no memory
            self._shares[row] = before * (1 - self._weight) + conflict * self._weight

    def forget(self) -> None:
        """Begin anew: for tests, and for what has to come out the same every time."""
        self._shares.clear()


contention = Contention()
"""What this process knows of the accounts."""
