"""What runs beside a worker of a Dask cluster: a pool of worker processes there, steered from elsewhere.

`begin` gives the workers their tasks, `look` says how far they are and passes on what the other side wants. Nothing
waits: who steers asks again and again. Instants are those of the database's clock, which all machines share.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from signal import SIGTERM
from typing import Any

from django_lockstep.lab.cluster.same_code import describe_code, require_same
from django_lockstep.lab.simulator.channel import Task
from django_lockstep.lab.simulator.database import clock_offset, describe_database
from django_lockstep.lab.simulator.interrupt import Interrupt
from django_lockstep.lab.simulator.pool import PoolResult, WorkerPool
from django_lockstep.lab.simulator.tally import Tally
from django_lockstep.lab.simulator.worker_process import WorkerConfig, connected

__all__ = ["Agent", "Glance", "agent", "begin", "describe", "look"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """How far the workers of one agent are."""

    completed: int
    """Operations since it was started."""
    at_barrier: bool
    """Whether all wait for the common start."""
    result: PoolResult | None
    """What came of their tasks; None while one of them works."""


class Agent:
    """Has a pool do tasks in a thread of its own; ``alias`` is the database whose clock counts."""

    def __init__(self, pool: WorkerPool, *, alias: str) -> None:
        self._pool = pool
        self._alias = alias
        self._offset = 0
        self._lock = threading.Lock()
        """Held where the start is given, and where it is taken."""
        self._at_barrier = False
        self._start: int | None = None
        self._result: PoolResult | None = None
        self._error: BaseException | None = None
        pool.name_start = self._name_start

    def begin(self, tasks: Sequence[Task]) -> None:
        """Give each worker its task."""
        # Each time, because clocks drift.
        self._offset = clock_offset(self._alias)
        self._at_barrier, self._start, self._result = False, None, None
        threading.Thread(target=self._run, args=(tasks,), daemon=True).start()

    def look(self, *, start: int | None = None, stop: bool = False) -> Glance:
        """Pass on when to start, or to stop; return how far the workers are. Raises what the pool has raised."""
        if stop and not self._pool.interrupt.requested:
            self._pool.interrupt.request(SIGTERM)
        if start is not None:
            with self._lock:
                self._at_barrier, self._start = False, start - self._offset
        if self._error is not None:
            raise self._error
        return Glance(completed=self._pool.completed, at_barrier=self._at_barrier, result=self._result)

    def _run(self, tasks: Sequence[Task]) -> None:
        try:
            result = self._pool.run(tasks)
            self._result = replace(result, results=tuple(map(self._on_server_clock, result.results)))
        except BaseException as error:  # noqa: BLE001 - raised again where it is seen
            self._error = error

    def _name_start(self) -> int | None:
        """Return the instant at which the workers that wait at the barrier start, once it is known."""
        with self._lock:
            start, self._start = self._start, None
            self._at_barrier = start is None
        return start

    def _on_server_clock(self, result: Any) -> Any:
        return result.shifted(self._offset) if isinstance(result, Tally) else result


_agents: list[Agent] = []
"""This process's one agent."""


@contextlib.contextmanager
def agent(
    config: WorkerConfig, *, alias: str, size: int, stuck_after: float, expected: Mapping[str, str]
) -> Iterator[tuple[Executor, int]]:
    """Yield an executor of `begin` and `look`, and 1; the pool's workers end with the block.

    Raises `ClusterUnavailable` if code, versions or database are not as `describe` says, and `SimulationError` if a
    worker cannot start.
    """
    with connected(config):
        require_same(expected, describe(alias))
        pool = WorkerPool(config, size=size, interrupt=Interrupt(), stuck_after=stuck_after)
        with pool, ThreadPoolExecutor(1) as executor:
            _agents.append(Agent(pool, alias=alias))
            yield executor, 1


def describe(alias: str) -> Mapping[str, str]:
    """Return what has to be the same on all machines, by name."""
    return {**describe_code(alias, ()), "the database": describe_database(alias)}


def begin(tasks: Sequence[Task]) -> None:
    """Give each worker its task, in their order; those that died are replaced."""
    _agents[0].begin(tasks)


def look(*, start: int | None = None, stop: bool = False) -> Glance:
    """Return how far the workers are.

    ``start``: when those that wait at the barrier are to go on, in nanoseconds of the database's clock; ``stop`` ends
    what they do early.
    """
    return _agents[0].look(start=start, stop=stop)
