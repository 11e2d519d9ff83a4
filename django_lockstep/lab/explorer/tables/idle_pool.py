"""Sessions and threads that are kept for a moment after an exploration, for the next one of this process.

Opening a session costs the server more than most schedules. What is kept is idle, outside of any transaction and
without locks, and is closed after `IDLE` seconds: DROP DATABASE, which refuses a database in use, waits five.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

__all__ = ["IDLE", "IdlePool", "close_idle_sessions"]

T = TypeVar("T")

IDLE = 1.0
"""Seconds after which kept items that were not taken are closed."""


_pools: list[IdlePool[Any]] = []


@atexit.register
def close_idle_sessions() -> None:
    """Close at once what this process keeps of earlier explorations, instead of a second later."""
    for pool in _pools:
        pool.clear()


class IdlePool(Generic[T]):
    """At most ``most`` idle items of one kind, by key; ``close`` is called, in any thread, for those not kept."""

    def __init__(self, close: Callable[[T], None], *, most: int) -> None:
        self._close = close
        self._most = most
        self._items: list[tuple[Hashable, T]] = []
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        _pools.append(self)
        os.register_at_fork(after_in_child=self._forget)

    def take(self, key: Hashable) -> T | None:
        """Return the most recently used item with this key, which then belongs to the caller; None if there is none."""
        with self._lock:
            for index in reversed(range(len(self._items))):
                if self._items[index][0] == key:
                    return self._items.pop(index)[1]
        return None

    def put(self, key: Hashable, item: T) -> None:
        """Keep the item until it is taken, or closed after `IDLE` seconds."""
        with self._lock:
            self._items.append((key, item))
            # Closed below, outside of the lock: closing a session talks to the server.
            outdated = self._items[: -self._most]
            del self._items[: -self._most]
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(IDLE, self.clear)
            self._timer.daemon = True
            self._timer.start()
        for _, old in outdated:
            self._close(old)

    def clear(self) -> None:
        """Close everything that is kept."""
        with self._lock:
            items, self._items = self._items, []
        for _, item in items:
            self._close(item)

    def _forget(self) -> None:
        """Drop the parent process's items without closing them: a forked child shares its sockets, not its threads."""
        self._items, self._timer, self._lock = [], None, threading.Lock()
