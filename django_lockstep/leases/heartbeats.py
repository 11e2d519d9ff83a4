"""Heartbeats: one thread for each store refreshes all of this process's leases there, and one watches them all.

So a process needs one more connection than without them, however many leases it holds. A refresh has a sixth of the
shortest ttl among them: one whose row is locked is given up then and tried again behind the others, which lose no more
time by it. Callbacks run in threads of their own.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from django.db import connections

from django_lockstep.leases.errors import LeaseLost
from django_lockstep.stores.protocol import timeout_of

logger = logging.getLogger("lockstep.leases")

_BEATS, _RETRIES = 3, 4
"""Refreshes in a ttl, and attempts within the time of one refresh after a failure."""


class Heartbeat:
    """Has the lease of a `LeaseHandle` refreshed and watched, or only watched where ``beats`` is False.

    Does not keep the handle alive.
    """

    def __init__(self, handle: Any, *, beats: bool) -> None:
        self.beats, self.stopped = beats, False
        self.interval = float(handle.ttl) / _BEATS
        self.due = time.monotonic() + self.interval
        self._patience = timeout_of(handle.ttl) + 1
        # Weak, so that a dropped handle ends its heartbeat instead of keeping the lease forever.
        self._handle = weakref.ref(handle)
        self._key = handle.key
        self._has_warned = False
        self._refreshing = threading.RLock()  # its own callback may stop it
        self._rounds = [_rounds_of("watch of leases", _look)]
        if beats:
            self._rounds.append(_rounds_of(f"heartbeat of leases on {handle.using}", _beat))
        for rounds in self._rounds:
            rounds.add(self)
        weakref.finalize(handle, self._end)

    def stop(self) -> None:
        """End it, and wait for a refresh under way, at most as long as a statement may take."""
        self._end()
        if self._refreshing.acquire(timeout=self._patience):
            self._refreshing.release()

    def notice(self) -> None:
        """Wake the watching thread: the handle's deadline has changed."""
        self._rounds[0].wake()

    def _end(self) -> None:
        self.stopped = True
        for rounds in self._rounds:
            rounds.wake()

    def refresh(self, *, timeout: float) -> None:
        """Refresh the lease if that is due, within so many seconds; after a failure it is due again soon."""
        with self._refreshing:
            if self.stopped or self.due > time.monotonic():
                return
            pause = self.interval
            try:
                if handle := self._handle():
                    handle.renew(handle.ttl, timeout=timeout)
            # The handle has already marked the lease as lost and called on_lost.
            except LeaseLost:
                self._end()
            except Exception:
                pause /= _RETRIES
                if not self.stopped:
                    logger.warning("A heartbeat of lease %r failed", self._key, exc_info=True)
            self.due = time.monotonic() + pause

    def look(self) -> float:
        """Warn or mark as lost if it is time; return the seconds until the next check."""
        handle = self._handle()
        left = float(handle.remaining) if handle else 0.0
        if handle is None or not left:
            # Without a heartbeat, an expired lease can still be refreshed by its holder.
            if handle and self.beats and not self.stopped:
                handle.lose("the database did not answer until it had expired")
                self._end()
            return self.interval
        until_danger = left - float(handle.margin)
        if until_danger > 0:
            self._has_warned = False
            return until_danger
        if not self._has_warned:
            self._has_warned = True
            handle.warn()
        return left


def _beat(heartbeats: list[Heartbeat]) -> float:
    timeout = timeout_of(_BEATS * min(heartbeat.interval for heartbeat in heartbeats))
    for heartbeat in sorted(heartbeats, key=lambda heartbeat: heartbeat.due):
        heartbeat.refresh(timeout=timeout)
    return min(heartbeat.due for heartbeat in heartbeats) - time.monotonic()


def _look(heartbeats: list[Heartbeat]) -> float:
    return min(heartbeat.look() for heartbeat in heartbeats)


class _Rounds:
    """A thread that does its work for all heartbeats again and again, as long as there are any."""

    def __init__(self, name: str, work: Callable[[list[Heartbeat]], float]) -> None:
        self.thread: threading.Thread | None = None
        self.heartbeats: list[Heartbeat] = []
        self._name, self._work = name, work
        self._lock = threading.Lock()
        self._wakes: SimpleQueue[None] = SimpleQueue()  # unlike an Event it may be set by the collector of garbage

    def add(self, heartbeat: Heartbeat) -> None:
        with self._lock:
            self.heartbeats.append(heartbeat)
            if self.thread is None:
                self.thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self.thread.start()
        self.wake()

    def wake(self) -> None:
        self._wakes.put(None)

    def _run(self) -> None:
        try:
            while heartbeats := self._alive():
                pause = min(max(self._work(heartbeats), 0.0), threading.TIMEOUT_MAX)
                with suppress(Empty):
                    self._wakes.get(timeout=pause)
        finally:
            # The thread's own connection; nothing else would close it.
            connections.close_all()

    def _alive(self) -> list[Heartbeat]:
        with self._lock:
            self.heartbeats = [heartbeat for heartbeat in self.heartbeats if not heartbeat.stopped]
            if not self.heartbeats:
                self.thread = None
            return self.heartbeats.copy()


_all_rounds: dict[str, _Rounds] = {}


def _rounds_of(name: str, work: Callable[[list[Heartbeat]], float]) -> _Rounds:
    return _all_rounds.setdefault(name, _Rounds(name, work))


def call_apart(callback: Callable[[], object], *, key: str) -> None:
    """Call it, in a thread of its own where this one has other leases to refresh or to watch; log its errors."""
    apart = threading.current_thread() in [rounds.thread for rounds in _all_rounds.values()]

    def call() -> None:
        try:
            callback()
        except Exception:
            # An error in a callback must not hide the loss of the lease from the caller.
            logger.exception("A callback of lease %r failed", key)
        finally:
            if apart:
                connections.close_all()

    if apart:
        threading.Thread(target=call, name="callback of a lease").start()
    else:
        call()


@atexit.register
def _stop_all() -> None:
    """End the threads before the interpreter shuts down: a thread inside the driver would crash it."""
    for rounds in _all_rounds.values():
        for heartbeat in rounds.heartbeats:
            heartbeat.stop()
        if thread := rounds.thread:
            thread.join(1.0)


if hasattr(os, "register_at_fork"):
    # In a forked process their threads do not exist.
    os.register_at_fork(after_in_child=_all_rounds.clear)
