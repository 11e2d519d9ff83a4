"""Where a worker process sits: its line to the parent, and what the two say to each other.

The parent sends tasks (picklable callables that take the desk); the worker answers `Done` or `Failed`. In between a
task may call `Desk.meet`: the worker sends `Arrived`, and when all have arrived the parent sends everybody the same
instant to start at, or None when the race is off. That is a barrier which a worker's death cannot block: unlike
``multiprocessing.Barrier`` it has no lock that a killed process could take with it.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, MutableSequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

from django_lockstep.lab.simulator.processes import parent_lives

__all__ = ["Arrived", "CalledOff", "Desk", "Done", "Failed", "Task", "idle"]

_SLICE = 0.1
"""Seconds that a pause lasts at most before the worker looks up."""
_LOOK = 1.0
"""Seconds between two looks for the parent, which take longer than an operation's other bookkeeping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A worker is at the barrier."""

    note: object
    """What it has to tell so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A worker has finished its task."""

    result: Any
    """What the task returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A worker could not do its task."""

    reason: str
    """The error, in a line."""


class CalledOff(Exception):
    """The race ended before this start."""


class Flag(Protocol):
    """A value in memory that the processes share."""

    value: int


class Desk:
    """A worker's view of the race."""

    def __init__(self, pipe: Connection[Any, Any], *, number: int, stop: Flag, beats: MutableSequence[int]) -> None:
        self.number = number
        self._pipe = pipe
        self._stop = stop
        self._beats = beats
        self._beat = beats[number]
        self._next_look = 0.0

    def serve(self) -> None:
        """Do tasks until the parent hangs up. Raises ``EOFError`` or ``ConnectionError`` then."""
        while True:
            order = self._pipe.recv_bytes()
            try:
                answer: Done | Failed = Done(result=pickle.loads(order)(self))  # noqa: S301 - the parent's own words
            except CalledOff:
                answer = Done(result=None)
            except Exception as error:  # noqa: BLE001 - whatever it is, the parent reports it
                answer = Failed(reason=f"{type(error).__name__}: {error}")
            self._pipe.send(answer)

    def meet(self, note: object = None) -> None:
        """Wait until all workers are here, and for the start. Raises `CalledOff` if there is none."""
        self._pipe.send(Arrived(note=note))
        start = self._pipe.recv()
        if start is None:
            raise CalledOff
        time.sleep(max(0, start - time.perf_counter_ns()) / 1e9)

    def beat(self) -> None:
        """Show that something was done."""
        self._beat += 1
        self._beats[self.number] = self._beat

    @property
    def stopping(self) -> bool:
        """Whether to end early: the parent says so, or is gone, which is looked at every second."""
        if self._stop.value:
            return True
        if (now := time.monotonic()) < self._next_look:
            return False
        self._next_look = now + _LOOK
        return not parent_lives()

    def pause(self, seconds: float) -> None:
        """Sleep, but not through a request to stop."""
        end = time.monotonic() + seconds
        while not self.stopping and (rest := end - time.monotonic()) > 0:
            time.sleep(min(rest, _SLICE))


Task = Callable[[Desk], Any]
"""What a worker can be asked to do; it travels pickled."""


def idle(desk: Desk) -> None:
    """Do nothing: the task of those whom a race does not need."""
