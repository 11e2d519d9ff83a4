"""Heartbeats: threads that refresh leases."""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from typing import Protocol

from django.db import connections

from django_lockstep.leases.errors import LeaseLost
from django_lockstep.stores.waiting import timeout_of

__all__ = ["Heartbeat"]

logger = logging.getLogger("lockstep.leases")

_BEATS, _RETRIES = 3, 4
"""Refreshes in a ttl, and attempts within the time of one refresh after a failure."""


class Refreshable(Protocol):
    """The part of a `LeaseHandle` that a heartbeat uses."""

    key: str
    ttl: float

    margin: float

    @property
    def remaining(self) -> float:
        """Seconds for which the lease is certainly held."""

    def warn(self) -> None:
        """Report that fewer seconds than the margin are left."""

    def refresh(self) -> None: ...

    def lose(self, reason: str) -> None:
        """Mark the lease as lost."""


class Heartbeat:
    """Two threads: one refreshes a lease on a connection of its own, the other checks that it does so in time.

    The second is needed where the database does not answer at all and the first blocks in the driver. It also warns
    when the end is near, and runs alone where ``beats`` is False. Neither keeps the handle alive.
    """

    def __init__(self, handle: Refreshable, *, beats: bool) -> None:
        self.beats = beats
        # Weak, so that a dropped handle ends its threads instead of keeping the lease forever.
        self._handle = weakref.ref(handle)
        self._key = handle.key
        self._interval = handle.ttl / _BEATS
        self._patience = timeout_of(handle.ttl) + 1
        self._has_warned = False
        self._stopped = threading.Event()
        self._moved = threading.Event()
        weakref.finalize(handle, _set, self._stopped, self._moved)
        self._threads = [
            threading.Thread(target=target, name=f"{name} of lease {handle.key}", daemon=True)
            for target, name in ((self._watch, "watch"), (self._beat, "heartbeat"))[: 2 if beats else 1]
        ]
        for thread in self._threads:
            thread.start()
        _running.add(self)

    def stop(self) -> None:
        """Stop the threads and wait for them, at most as long as a statement may take."""
        _set(self._stopped, self._moved)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(self._patience)

    def notice(self) -> None:
        """Wake the watching thread: the handle's deadline has changed."""
        self._moved.set()

    def _beat(self) -> None:
        try:
            pause = self._interval
            while not self._stopped.wait(pause):
                pause = self._interval if self._refreshed() else self._interval / _RETRIES
        finally:
            # The thread's own connection; nothing else would close it.
            connections.close_all()

    def _refreshed(self) -> bool:
        """Refresh the lease; False if it should be retried soon."""
        handle = self._handle()
        if handle is None:
            return True
        try:
            handle.refresh()
        # refresh() has already marked the lease as lost and called on_lost.
        except LeaseLost:
            _set(self._stopped, self._moved)
        except Exception:
            if not self._stopped.is_set():
                logger.warning("A heartbeat of lease %r failed", self._key, exc_info=True)
            return False
        return True

    def _watch(self) -> None:
        while not self._stopped.is_set():
            self._moved.wait(self._look())
            self._moved.clear()

    def _look(self) -> float:
        """Warn or mark as lost if it is time; return the seconds until the next check."""
        handle = self._handle()
        if handle is None:
            return self._interval
        if not (left := handle.remaining):
            return self._ended(handle)
        if left > handle.margin:
            self._has_warned = False
            return left - handle.margin
        if not self._has_warned:
            self._has_warned = True
            handle.warn()
        return left

    def _ended(self, handle: Refreshable) -> float:
        # Without a heartbeat, an expired lease can still be refreshed by its holder.
        if self.beats and not self._stopped.is_set():
            handle.lose("the database did not answer until it had expired")
            _set(self._stopped, self._moved)
        return self._interval


def _set(*events: threading.Event) -> None:
    for event in events:
        event.set()


_running: weakref.WeakSet[Heartbeat] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Stop all threads before the interpreter shuts down: a thread inside the driver would crash it."""
    for heartbeat in list(_running):
        heartbeat.stop()
