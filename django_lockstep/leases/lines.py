"""Where this process's waiters stand in line: only the first of each line go on to the server's queue.

A place in the server's queue is an open transaction, which keeps a session of the server. As many waiters as a pooler
has sessions would leave none to the holder, who could then neither refresh nor release what they wait for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from django.conf import settings


def most_waiters() -> int:
    """``LOCKSTEP_LEASE_WAITERS`` (default 2): how many places in the server's queues this process takes at most.

    For each database. 0: its waiters poll.
    """
    most: int = getattr(settings, "LOCKSTEP_LEASE_WAITERS", 2)
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise ValueError(f"LOCKSTEP_LEASE_WAITERS must be an integer of at least 0, not {most!r}")
    return most


class Lines:
    """Lines of threads by label, each in order of arrival; a line exists as long as a thread stands in it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all lines: in a forked process their threads do not exist, and the lock may be taken."""
        self._lock = threading.Lock()
        self._lines: dict[Hashable, list[threading.Event]] = {}

    @contextmanager
    def joined(self, label: Hashable, *, places: int) -> Iterator[Callable[[float], bool]]:
        """Stand in the line for the length of the block, at its end.

        The function waits until this is one of the first ``places`` of the line, at most that many seconds; it returns
        whether it is.
        """
        ticket = threading.Event()
        try:
            with self._lock:
                line = self._lines[label] = [*self._lines.get(label, ()), ticket]
                if len(line) <= places:
                    ticket.set()
            yield ticket.wait
        finally:
            with self._lock:
                if line := [waiter for waiter in self._lines.pop(label, ()) if waiter is not ticket]:
                    self._lines[label] = line
                for waiter in line[:places]:
                    waiter.set()


lines = Lines()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lines.reset)
