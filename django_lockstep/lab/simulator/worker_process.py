"""What runs in a worker process: one database connection, and one task after the other.

The parent sends tasks (picklable callables that take the channel); the worker sends a `Message` when one is done or has
failed. In between a task may call `WorkerChannel.wait_at_barrier`: the worker says so, and when all workers have
arrived the parent sends each of them the same start time. A worker's death cannot block this barrier: unlike
``multiprocessing.Barrier`` it has no lock that a killed process could take with it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import time
from collections.abc import Callable, Iterator, MutableSequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal

_SLICE = 0.1
"""Seconds that a pause sleeps at most before it checks for a request to stop."""
_PARENT_CHECK = 1.0
"""Seconds between two checks for the parent process, which take longer than the other bookkeeping of an operation."""


Message = tuple[Literal["at barrier", "done", "failed"], Any]
"""That the worker waits at the barrier, what its task returned, or its error in a line."""


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
            except Exception as error:  # noqa: BLE001 - the parent reports it, whatever it is
                answer = ("failed", f"{type(error).__name__}: {error}")
            self._pipe.send(answer)

    def wait_at_barrier(self) -> None:
        """Wait until all workers have arrived, or until they are to stop, and for the common start."""
        self._pipe.send(("at barrier", None))
        start = self._pipe.recv()
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConnection:
    """How a worker connects."""

    alias: str
    """The database, as the settings name it."""
    database: str
    """The database's name as the parent uses it: under a test runner it is not the one in the settings."""
    session: str
    """The ``application_name`` of its connection, by which the server's view of it can be found."""


def main(
    config: WorkerConnection, pipe: Connection[Any, Any], *, number: int, stop: Any, completed: MutableSequence[int]
) -> None:
    """Connect, report that, and do tasks until the parent closes the pipe; then exit as any process does."""
    # Ctrl-C reaches the whole process group; the parent decides when workers stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, ConnectionError), pipe:
        try:
            with connected(config):
                pipe.send(("done", None))
                WorkerChannel(pipe, number=number, stop=stop, completed=completed).serve()
        except (EOFError, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - the parent reports it
            pipe.send(("failed", f"{type(error).__name__}: {error}"))


@contextlib.contextmanager
def connected(config: WorkerConnection) -> Iterator[None]:
    """Set Django up and keep this process connected to the parent's database."""
    import django
    from django.apps import apps
    from django.db import connections

    # The fork server has set Django up already; a spawned process has not.
    if not apps.ready:
        django.setup()
    connection = connections[config.alias]
    # Spawned processes read the settings, in which a test runner has not replaced the name.
    connection.settings_dict["NAME"] = config.database
    options = connection.settings_dict.get("OPTIONS") or {}
    connection.settings_dict["OPTIONS"] = {**options, "application_name": config.session}
    try:
        connection.ensure_connection()
        yield
    finally:
        connection.close()
        close_pool = getattr(connection, "close_pool", None)
        if close_pool is not None:
            close_pool()
