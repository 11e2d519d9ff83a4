"""One worker's part of a load: operations one after the other, each timed, its outcome counted."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from django.db import InterfaceError, OperationalError, connections

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.simulator.tally import LoadOperation, Tally
from django_lockstep.lab.simulator.worker_process import WorkerChannel

_BATCH = 256
"""Operations that are counted together: between two calls to the database the processor's caches hold other code."""
_SERVER_SHUTDOWN = {"57P01", "57P02", "57P03"}


class LoadClient(Protocol):
    """A worker's side of a load."""

    refusals: tuple[type[Exception], ...]
    """Errors that are a correct answer, such as insufficient funds, and not a failure."""
    conflicts: int
    """Attempts that were repeated because of a conflict with another worker."""
    deadlocks: int
    """Attempts that were repeated because of a deadlock."""

    def next_operation(self) -> LoadOperation:
        """Return what to do next; not part of the measured time."""


class Load(Protocol):
    """What all workers do; picklable."""

    def client(self, worker: int) -> AbstractContextManager[LoadClient]:
        """Return the part of the worker with this number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTask:
    """A worker's task: a load, for a time or for a number of operations."""

    load: Load
    """What to do."""
    worker: int
    """Which part of it."""
    seconds: float | None
    """How long; None for as long as the operations take."""
    operations: int | None
    """How often; None for as often as time allows."""
    think_time: float
    """Seconds to wait between two operations."""

    def __call__(self, channel: WorkerChannel) -> Tally:
        """Wait for the other workers, perform the operations, and return the counts."""
        # Set up before the barrier, so that imports and connecting are not measured.
        with self.load.client(self.worker) as client:
            channel.wait_at_barrier()
            tally = self._work(client, channel)
            tally.conflicts, tally.retried_deadlocks = client.conflicts, client.deadlocks
            return tally

    def _work(self, client: LoadClient, channel: WorkerChannel) -> Tally:
        clock, tally = time.perf_counter_ns, Tally()
        tally.started = tally.ended = clock()
        end = tally.started + int(self.seconds * 1e9) if self.seconds is not None else None
        left = self.operations if self.operations is not None else -1
        done: list[tuple[LoadOperation | None, int]] = []
        # An operation that has begun in time counts, with its time: rates are by the last answer, not by the plan.
        while left and (end is None or tally.ended < end) and not channel.stopping:
            # Drawn before the clock is read, so that the draw is not part of the latency.
            operation = client.next_operation()
            before = clock()
            succeeded = self._perform(operation, client=client, tally=tally)
            tally.ended = clock()
            done.append((operation if succeeded else None, tally.ended - before))
            # Counted in batches, outside of the measured time of an operation.
            if len(done) == _BATCH:
                tally.record(done)
                done.clear()
            channel.count_completed()
            left -= 1
            if self.think_time and left:
                channel.pause(min(self.think_time, (end - clock()) / 1e9) if end else self.think_time)
        tally.record(done)
        return tally

    def _perform(self, operation: LoadOperation, *, client: LoadClient, tally: Tally) -> bool:
        """Perform it and count a refusal or an error; return whether it succeeded."""
        try:
            operation.perform()
        except client.refusals:
            tally.refused += 1
        except Exception as error:  # noqa: BLE001 - counted by kind and shown
            tally.fail(error)
            if _is_in_doubt(error):
                tally.in_doubt += 1
                connections.close_all()  # the next operation opens the worker's connection again
        else:
            return True
        return False


def _is_in_doubt(error: Exception) -> bool:
    """Whether the connection broke, so that a COMMIT may have been carried out without an answer."""
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    sqlstate = sqlstate_of(error)
    return sqlstate is None or sqlstate.startswith("08") or sqlstate in _SERVER_SHUTDOWN
