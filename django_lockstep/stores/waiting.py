"""How long operations on leases may take, and the pauses between attempts."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from django.conf import settings

SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.5
"""Bounds of the pauses between two attempts, in seconds."""


def lease_waits() -> bool:
    """``LOCKSTEP_LEASE_WAITS`` (default True): False makes every ``wait`` a single attempt, for tests."""
    return bool(getattr(settings, "LOCKSTEP_LEASE_WAITS", True))


def timeout_of(ttl: float) -> float:
    """Return how many seconds an operation on a lease may take: half of a heartbeat's interval, at most ten."""
    return min(ttl / 6, 10.0)


def pauses(until: float, *, shortest: float = SHORTEST_PAUSE) -> Iterator[float]:
    """Yield seconds to sleep until ``time.monotonic()`` is ``until``: a tenth of the time waited, with jitter."""
    start = time.monotonic()
    while (now := time.monotonic()) < until:
        pause = min(max((now - start) / 10, shortest), LONGEST_PAUSE)
        yield min(pause * random.uniform(0.5, 1.0), until - now)  # noqa: S311 - jitter is no secret
