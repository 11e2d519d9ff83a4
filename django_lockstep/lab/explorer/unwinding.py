"""How actors are brought back from wherever they are: by their own exceptions, by cancelling, by interrupting."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Sequence
from queue import Empty, SimpleQueue

from django_lockstep.lab.explorer.actors import Actor, Event
from django_lockstep.lab.explorer.server import Server

__all__ = ["Unwinding"]

_TIMEOUT = 2.0
"""Seconds that an abandoned actor has to unwind."""
_PUSH = 0.1
"""Seconds after which it is interrupted: rarely, as this may come in the middle of what it does to unwind."""


class Unwinding:
    """Unwinds actors, and remembers whom it had to force."""

    def __init__(self, actors: Sequence[Actor], *, events: SimpleQueue[Event], server: Callable[[str], Server]) -> None:
        self._actors = actors
        self._events = events
        self._server = server
        self._lost: list[str] = []
        self._cancelled: set[tuple[str, int]] = set()
        self._interrupted = False

    @property
    def forced(self) -> bool:
        """Whether an actor did not come back by itself, so that its thread and sessions are fit for nothing more."""
        return bool(self._lost or self._interrupted or self._cancelled)

    def unwind(self, unfinished: set[int]) -> None:
        """Let these actors raise at their next statement; those that never get there are lost."""
        for index in unfinished:
            self._actors[index].abandon()
        deadline = time.monotonic() + _TIMEOUT
        while unfinished and time.monotonic() < deadline:
            try:
                index, kind, _ = self._events.get(timeout=_PUSH)
            except Empty:
                self._push(unfinished)
                continue
            if kind == "done":
                self._actors[index].spare()
                unfinished.discard(index)
        self._lost += [self._actors[index].name for index in sorted(unfinished)]

    def _push(self, unfinished: Collection[int]) -> None:
        """Cancel what the actors do in the server, and interrupt those that are not there."""
        for index in unfinished:
            for alias, hooks in list(self._actors[index].hooks.items()):
                self._server(alias).cancel(hooks.pid)
                self._cancelled.add((alias, hooks.pid))
            self._actors[index].interrupt()
            self._interrupted = True

    def end_lost_sessions(self) -> str:
        """End the sessions of actors that were lost, and return a sentence on them; empty where there are none."""
        for actor in self._actors:
            if actor.name in self._lost:
                for alias, hooks in list(actor.hooks.items()):
                    self._server(alias).terminate(hooks.pid)
        return f"\nThe sessions of {', '.join(self._lost)} were ended, the threads still wait." if self._lost else ""

    def end_all(self) -> None:
        """End every thread that can be ended, and what cancelled statements left to the server."""
        for actor in self._actors:
            actor.stop()
        for actor in self._actors:
            if actor.name not in self._lost:
                actor.thread.join(_TIMEOUT)
        if self._interrupted:
            gc.collect()  # who was interrupted while connecting leaves a session to the garbage
        for alias, pid in self._cancelled:  # one interrupted right after sending left its statement to the server
            self._server(alias).terminate(pid)
