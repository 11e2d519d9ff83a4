"""A worker's channel to the parent process, and the messages that the two exchange.

The parent sends tasks (picklable callables that take the channel); the worker sends a `Message` when one is done or has
failed. In between a task may call `WorkerChannel.wait_at_barrier`: the worker says so, and when all workers have
arrived the parent sends each of them the same start time, or None when the task is cancelled. A worker's death cannot
block this barrier: unlike ``multiprocessing.Barrier`` it has no lock that a killed process could take with it.
"""

from __future__ import annotations

import multiprocessing
import pickle
import time
from collections.abc import Callable, MutableSequence
from multiprocessing.connection import Connection
from typing import Any, Literal

__all__ = ["Cancelled", "Message", "Task", "WorkerChannel", "idle"]

_SLICE = 0.1
"""Seconds that a pause sleeps at most before it checks for a request to stop."""
_PARENT_CHECK = 1.0
"""Seconds between two checks for the parent process, which take longer than the other bookkeeping of an operation."""


Message = tuple[Literal["at barrier", "done", "failed"], Any]
"""That the worker waits at the barrier, what its task returned, or its error in a line."""


class Cancelled(Exception):
    """The parent cancelled the task before its start."""


class WorkerChannel:
    """The worker's end of the connection to the parent; ``stop`` and ``completed`` are in memory that both share."""

    def __init__(self, pipe: Connection[Any, Any], *, number: int, stop: Any, completed: MutableSequence[int]) -> None:
        self.number = number
        self._pipe = pipe
        self._stop = stop
        self._completed = completed
        self._count = completed[number]
        self._next_check = 0.0

    def serve(self) -> None:
        """Do tasks until the parent closes the pipe. Raises ``EOFError`` or ``ConnectionError`` then."""
        while True:
            message = self._pipe.recv_bytes()
            try:
                # Unpickled here, not by recv(): a task that cannot be loaded is the task's failure, not the pipe's.
                answer: Message = ("done", pickle.loads(message)(self))  # noqa: S301 - sent by the parent
            except Cancelled:
                answer = ("done", None)
            except Exception as error:  # noqa: BLE001 - the parent reports it, whatever it is
                answer = ("failed", f"{type(error).__name__}: {error}")
            self._pipe.send(answer)

    def wait_at_barrier(self) -> None:
        """Wait until all workers have arrived, and for the common start. Raises `Cancelled` if there is none."""
        self._pipe.send(("at barrier", None))
        start = self._pipe.recv()
        if start is None:
            raise Cancelled
        # The parent names an instant in the near future, as it can wake the workers only one after the other.
        time.sleep(max(0, start - time.perf_counter_ns()) / 1e9)

    def count_completed(self) -> None:
        """Count one completed operation; the parent takes a worker that counts nothing for stuck."""
        self._count += 1
        # Shared memory instead of a message: this happens once for each operation, between two that are measured.
        self._completed[self.number] = self._count

    @property
    def stopping(self) -> bool:
        """Whether to end early: the parent asked for it, or is gone, which is checked once a second."""
        if self._stop.value:
            return True
        if (now := time.monotonic()) < self._next_check:
            return False
        self._next_check = now + _PARENT_CHECK
        # The process that started this one; the fork server's own parent does not count.
        parent = multiprocessing.parent_process()
        return parent is not None and not parent.is_alive()

    def pause(self, seconds: float) -> None:
        """Sleep, but wake up for a request to stop."""
        end = time.monotonic() + seconds
        while not self.stopping and (remaining := end - time.monotonic()) > 0:
            time.sleep(min(remaining, _SLICE))


Task = Callable[[WorkerChannel], Any]
"""What a worker can be asked to do; it is sent pickled."""


def idle(channel: WorkerChannel) -> None:
    """Do nothing: the task of workers that are not needed."""
