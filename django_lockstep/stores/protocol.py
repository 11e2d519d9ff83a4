"""The contract of a store of leases, how long its operations may take, and the pauses between attempts."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from django.conf import settings

from django_lockstep.stores.terms import Claim, Grant, Holder

CALL_TIMEOUT = 10.0
"""Seconds that an operation may take unless the caller says otherwise."""


class LeaseStore(Protocol):
    """The verbs of leases; each is one atomic operation of the server, and may be called from every thread.

    Where the server does not answer they raise an ``OperationalError``: `LeaseTimedOut` or the driver's own on a
    database, `StoreUnavailable` elsewhere.
    """

    name: str
    """The database's alias, or the name in ``LOCKSTEP_STORES``."""

    @property
    def is_isolated(self) -> bool:
        """Whether other threads cannot see what this one writes, as in the transaction of a ``TestCase``."""

    def acquire(self, claim: Claim, *, wait: float = 0.0, yields: bool = False) -> Grant | Holder | None:
        """Take the lease, or return its holder after ``wait`` seconds; None if there is none, and others are first.

        ``yields`` is for callers that poll: the lease is left to those who wait in a queue, where there is one.
        """

    def renew(self, key: str, token: int, *, ttl: float, timeout: float = CALL_TIMEOUT) -> bool:
        """Let the lease expire ``ttl`` seconds from now, unless it would later; False if the token lost it."""

    def note(self, key: str, token: int, *, data: str, timeout: float = CALL_TIMEOUT) -> bool:
        """Replace the lease's data, which is JSON; False if the token no longer holds the lease."""

    def release(
        self, key: str, token: int, *, at_least: float = 0.0, held: float = 0.0, timeout: float = CALL_TIMEOUT
    ) -> bool:
        """Release the lease; False if the token no longer holds it, and nothing is changed then.

        It stays taken until ``at_least`` seconds after its acquire. ``held`` is how long ago that was by the holder's
        own monotonic clock, for stores that have no clock.
        """

    def get(self, key: str) -> Holder | None:
        """Return the holder of the lease; None if it is free."""

    def guard(self, key: str, token: int, *, within: float | None = None) -> Mapping[str, Any] | None:
        """Guard writes by the lease: the open transaction, or the one that the returned condition is put into.

        Raises `LeaseLost` where the store knows at once that the token does not hold the lease.
        """

    def abandon(self, key: str, owner: str) -> None:
        """Release what an interrupted acquire may have taken in this name; does nothing where nothing can be done."""

    def is_lost(self) -> bool:
        """Whether the operation that just failed in this thread could not reach the server; another attempt may."""

    def close(self) -> None:
        """Close the calling thread's connection, until the next operation; for long work without any."""

    def list(self) -> Sequence[Holder]:
        """Return the holders of all leases that are not free, by key."""


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
