"""Ctrl-C as a flag to check between two steps, instead of an exception in the middle of one."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Self

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class StopSignal(contextlib.ExitStack):
    """Catches the signals that ask a command to end, for the length of a block in the main thread.

    The first signal only sets ``signal``; what was measured can still be reported. The second one raises
    ``KeyboardInterrupt``, for users who do not want to wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self.signal: int | None = None

    def __enter__(self) -> Self:
        """Catch the signals; in other threads than the main one only `request` works."""
        if threading.current_thread() is threading.main_thread():
            for name in _SIGNALS:
                if number := getattr(signal, name, None):
                    before = signal.signal(number, lambda number, frame: self.request(number))
                    self.callback(signal.signal, number, before)
        return super().__enter__()

    @property
    def requested(self) -> bool:
        """Whether one of the signals has arrived."""
        return self.signal is not None

    @property
    def name(self) -> str | None:
        """The signal's name, such as SIGINT; None while there was none."""
        return None if self.signal is None else signal.Signals(self.signal).name

    def request(self, number: int) -> None:
        """Act as if the signal of this number had arrived."""
        if self.requested:
            raise KeyboardInterrupt
        # No more than a note: a handler runs between any two byte codes of the main thread, also in the middle of a
        # commit.
        self.signal = number
