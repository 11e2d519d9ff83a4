"""What a process remembers by key, and never more than so much of it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Bounded"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """Remembers at most ``most`` keys; the one that was written longest ago is forgotten first. For all threads."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def __setitem__(self, key: K, value: V) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._most:
                self._values.popitem(last=False)

    def get(self, key: K, default: V) -> V:
        """Return what was written last under the key, if it is still remembered."""
        return self._values.get(key, default)

    def clear(self) -> None:
        """Forget all keys at once: for tests, and for what has to begin anew."""
        with self._lock:
            self._values.clear()
