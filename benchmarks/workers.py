"""Worker processes for contenders in Python: started together, each with its own connection; CPU time is measured."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection

from django_lockstep.lab.simulator.interrupt import StopSignal
from django_lockstep.lab.simulator.load_task import Load, LoadTask
from django_lockstep.lab.simulator.pool import WorkerPool
from django_lockstep.lab.simulator.tally import Tally
from django_lockstep.lab.simulator.worker_process import WorkerChannel, WorkerConnection, idle


class WorkersError(Exception):
    """A worker did not finish, or an operation failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """A worker's task: its load, with the CPU seconds from the common start to its end."""

    task: LoadTask
    """What to do."""

    def __call__(self, channel: WorkerChannel) -> tuple[Tally, float]:
        """Do it, and return its tally and the seconds."""
        begun = 0.0
        wait = channel.wait_at_barrier

        def begin() -> None:
            nonlocal begun
            wait()
            begun = _cpu_seconds()

        with contextlib.ExitStack() as stack:
            # The task waits at the barrier after it has warmed up: only from there on its time counts.
            vars(channel)["wait_at_barrier"] = begin
            stack.callback(vars(channel).pop, "wait_at_barrier")
            tally = self.task(channel)
            return tally, _cpu_seconds() - begun


@contextlib.contextmanager
def worker_pool(workers: int) -> Iterator[WorkerPool]:
    """Provide worker processes for the length of a block. Raises ``SimulationError`` if they cannot start."""
    config = WorkerConnection(alias=DEFAULT_DB_ALIAS, database=connection.settings_dict["NAME"], session="benchmark")
    with StopSignal() as interrupt, WorkerPool(config, size=workers, interrupt=interrupt) as pool:
        yield pool


def race(pool: WorkerPool, load: Load, *, workers: int, seconds: float) -> tuple[list[Tally], float]:
    """Run the load on this number of workers; return their tallies and the CPU seconds that they used.

    Raises `WorkersError` if a worker or an operation failed, `KeyboardInterrupt` if the user interrupted.
    """
    limits: dict[str, Any] = {"seconds": seconds, "operations": None, "think_time": 0.0}
    tasks = [Metered(task=LoadTask(load=load, worker=number, **limits)) for number in range(workers)]
    # The pool is as large as the largest cell; starting another one would take longer than the measurement.
    result = pool.run([*tasks, *[idle] * (len(pool.workers) - workers)])
    # First: an interrupt makes workers fail, which is then not theirs.
    if pool.interrupt.requested:
        raise KeyboardInterrupt
    if result.worker_failures:
        raise WorkersError(str(result.worker_failures[0]))
    tallies, cpu = zip(*result.results[:workers], strict=True)
    whole = Tally.merge(tallies)
    if whole.failed:
        kind, count = whole.errors.most_common(1)[0]
        raise WorkersError(
            f"{count} of {whole.failed + whole.succeeded} operations ended with {kind}: {whole.examples[kind]}"
        )
    return list(tallies), sum(cpu)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
