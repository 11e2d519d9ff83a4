"""When this process first saw the current record of each lease, by its own monotonic clock."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import NamedTuple

_REMEMBERED = 10_000
"""Leases whose records a process watches."""


class _Sighting(NamedTuple):
    """A record of a lease, first seen at ``since``, which promises its holder ``ttl`` seconds."""

    record: str
    ttl: float
    since: float


class Sightings:
    """The records that a process watches.

    Without a lock, which a fork could copy while it is held: of two threads that see different records the later one
    stays, and the condition of a takeover refuses a record that is not the current one.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[str, _Sighting] = OrderedDict()

    def watch(self, key: str, record: str, *, ttl: float) -> float:
        """Return for how many seconds no other record of the lease has been seen.

        To be called after the answer that shows the record: it was the current one at some time before, and its holder
        does not count on it for longer than a ttl after that.
        """
        now = time.monotonic()
        sighting = self._seen.get(key)
        if sighting is None or sighting.record != record:
            self._seen[key] = sighting = _Sighting(record=record, ttl=ttl, since=now)
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
        return now - sighting.since

    def expired(self, key: str) -> str | None:
        """Return the lease's record if it was seen for its whole ttl."""
        sighting = self._seen.get(key)
        if sighting is None or time.monotonic() - sighting.since < sighting.ttl:
            return None
        return sighting.record

    def current(self, key: str) -> tuple[str, float]:
        """Return the lease's record that was seen last, and for how many seconds at most it promises the lease."""
        sighting = self._seen.get(key)
        if sighting is None:
            return "none was seen", 0.0
        return sighting.record, max(0.0, sighting.since + sighting.ttl - time.monotonic())

    def age(self, key: str) -> None:
        """Let the lease's record, which has been seen, have been seen for its whole ttl; for tests."""
        sighting = self._seen[key]
        self._seen[key] = sighting._replace(since=sighting.since - sighting.ttl)
