"""A dictionary of limited size, shared by the threads of a process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["BoundedCache"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Holds at most ``max_size`` keys; the one that was written longest ago is dropped first. Thread-safe."""

    def __init__(self, max_size: int = 10_000) -> None:
        self._max_size = max_size
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def __setitem__(self, key: K, value: V) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._max_size:
                self._values.popitem(last=False)

    def get(self, key: K, default: V) -> V:
        # Without the lock: one lookup is atomic in CPython, and a value that is missed is computed again.
        return self._values.get(key, default)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
