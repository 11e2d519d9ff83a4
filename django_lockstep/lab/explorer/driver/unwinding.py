"""Unwinds actors from wherever they are: by exceptions at their gates, by cancelling statements, by interrupts."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Sequence
from queue import Empty, SimpleQueue

from django_lockstep.lab.explorer.driver.actors import Actor
from django_lockstep.lab.explorer.driver.events import Event, next_event
from django_lockstep.lab.explorer.driver.server import Server

__all__ = ["Unwinding"]

_TIMEOUT = 2.0
"""Seconds that an abandoned actor has to unwind."""
_FORCE_AFTER = 0.1
"""Seconds after which it is interrupted: not earlier, as an interrupt may hit it while it unwinds."""


class Unwinding:
    """Unwinds actors, and remembers which ones it had to force."""

    def __init__(self, actors: Sequence[Actor], *, events: SimpleQueue[Event], server: Callable[[str], Server]) -> None:
        self._actors = actors
        self._events = events
        self._server = server
        self._lost: list[str] = []
        self._cancelled: set[tuple[str, int]] = set()
        self._interrupted = False

    @property
    def forced(self) -> bool:
        """Whether an actor did not unwind by itself, so that its thread and sessions cannot be used again."""
        return bool(self._lost or self._interrupted or self._cancelled)

    def unwind(self, unfinished: set[int]) -> None:
        """Make these actors raise at their next statement; those that do not get there in time are lost."""
        # All of them before any is waited for: one may hold the lock that another one needs to get to its end.
        for index in unfinished:
            self._actors[index].abandon()
        deadline = time.monotonic() + _TIMEOUT
        while unfinished and time.monotonic() < deadline:
            try:
                index, kind, _ = next_event(self._events, timeout=_FORCE_AFTER)
            except Empty:
                self._force(unfinished)
                continue
            # An interrupt that comes late would hit the next run.
            if kind == "done" and self._actors[index].spare():
                unfinished.discard(index)
        self._lost += [self._actors[index].name for index in sorted(unfinished)]

    def _force(self, unfinished: Collection[int]) -> None:
        """Cancel the actors' statements in the server, and interrupt their threads."""
        for index in unfinished:
            for alias, hooks in list(self._actors[index].hooks.items()):
                # Both: the actor may be in a statement, or in code that sends nothing.
                self._server(alias).cancel(hooks.pid)
                self._cancelled.add((alias, hooks.pid))
            self._actors[index].interrupt()
            self._interrupted = True

    def end_lost_sessions(self) -> str:
        """End the sessions of lost actors, and return a sentence on them; empty if there are none."""
        for actor in self._actors:
            if actor.name in self._lost:
                for alias, hooks in list(actor.hooks.items()):
                    self._server(alias).terminate(hooks.pid)
        return f"\nThe sessions of {', '.join(self._lost)} were ended; their threads still wait." if self._lost else ""

    def end_all(self) -> None:
        """End every thread that can be ended, and the server processes of cancelled statements."""
        for actor in self._actors:
            actor.stop()
        for actor in self._actors:
            if actor.name not in self._lost:
                actor.thread.join(_TIMEOUT)
        if self._interrupted:
            gc.collect()  # an interrupt while connecting leaves an unreferenced session
        for alias, pid in self._cancelled:  # an interrupt right after sending leaves the statement running
            self._server(alias).terminate(pid)
