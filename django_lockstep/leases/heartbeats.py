"""Heartbeats: threads that refresh leases."""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from typing import Protocol

from django.db import connections

from django_lockstep.leases.errors import LeaseLost
from django_lockstep.leases.stores import timeout_of

__all__ = ["Heartbeat"]

logger = logging.getLogger("lockstep.leases")

_BEATS, _RETRIES = 3, 4
"""Beats in a ttl, and tries in the time of a beat where one has failed."""


class Lively(Protocol):
    """What a heartbeat needs of a `LeaseHandle`."""

    key: str
    ttl: float

    margin: float

    @property
    def remaining(self) -> float:
        """Seconds for which it is surely held."""

    def warn(self) -> None:
        """Tell that fewer seconds than the margin are left."""

    def refresh(self) -> None:
        """Refresh the lease."""

    def lose(self, reason: str) -> None:
        """Note that it is lost."""


class Heartbeat:
    """Two threads: one refreshes a lease on a connection of its own, the other watches that it succeeds in time.

    The second is for a database that does not answer at all: the first then hangs in the driver. It also tells when the
    end is near, and is alone where nothing ``beats``. Neither keeps the handle alive.
    """

    def __init__(self, handle: Lively, *, beats: bool) -> None:
        self.beats = beats
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
        """End the threads and wait for them, at most as long as a statement may take."""
        _set(self._stopped, self._moved)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(self._patience)

    def notice(self) -> None:
        """Look at the handle again, whose time has changed."""
        self._moved.set()

    def _beat(self) -> None:
        try:
            pause = self._interval
            while not self._stopped.wait(pause):
                pause = self._interval if self._refreshed() else self._interval / _RETRIES
        finally:
            connections.close_all()

    def _refreshed(self) -> bool:
        """Refresh the lease; False where that is to be tried again soon."""
        handle = self._handle()
        if handle is None:
            return True
        try:
            handle.refresh()
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
        """Tell what has to be told now; return for how many seconds there will be nothing."""
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

    def _ended(self, handle: Lively) -> float:
        # What nothing refreshes can still be refreshed late.
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
    """Let no thread be inside the driver when the interpreter goes."""
    for heartbeat in list(_running):
        heartbeat.stop()
