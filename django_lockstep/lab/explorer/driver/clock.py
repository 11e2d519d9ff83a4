"""A clock for each actor that sleeps: no time passes, and the other actors can go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["VirtualClock"]

_CLOCKS = ("time", "monotonic", "perf_counter")


class VirtualClock(AbstractContextManager["VirtualClock"]):
    """Replaces `time.sleep` and the clocks of `time` while it is entered; other threads than the actors' see no change.

    ``pauses`` are called by the actors' threads instead of sleeping.
    """

    def __init__(self, pauses: Mapping[threading.Thread, Callable[[float], None]]) -> None:
        self._pauses = pauses
        self._ahead: dict[threading.Thread, float] = {}
        self._real: dict[str, Callable[..., Any]] = {}

    def __enter__(self) -> VirtualClock:
        self._real = {name: getattr(time, name) for name in ("sleep", *_CLOCKS)}
        replaced = {"sleep": self._sleep, **{name: self._clock(self._real[name]) for name in _CLOCKS}}
        for name, function in replaced.items():
            # In the module, because code calls `time.sleep()` by that name. What has imported the function itself keeps
            # the real one.
            setattr(time, name, function)
        return self

    def __exit__(self, *error: object) -> None:
        for name, real in self._real.items():
            setattr(time, name, real)

    def reset(self) -> None:
        """Set every actor's clock back to the real one."""
        self._ahead.clear()

    def _sleep(self, seconds: float) -> None:
        thread = threading.current_thread()
        pause = self._pauses.get(thread)
        if pause is None:
            self._real["sleep"](seconds)
        else:
            self._ahead[thread] = self._ahead.get(thread, 0.0) + seconds
            pause(seconds)

    def _clock(self, real: Callable[[], float]) -> Callable[[], float]:
        return lambda: real() + self._ahead.get(threading.current_thread(), 0.0)
