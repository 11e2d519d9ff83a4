"""A pool whose worker processes run beside the workers of a Dask cluster, all on this process's database.

The machines have a barrier in common: its start is an instant of the database's clock. What they count comes back with
their times by that clock, so that it is merged as if it came from one machine.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from django_lockstep.lab.cluster.errors import ClusterUnavailable
from django_lockstep.lab.cluster.executor import ClusterWorkers, cluster_workers
from django_lockstep.lab.simulator.channel import Task
from django_lockstep.lab.simulator.cluster_agent import Glance, agent, begin, describe, look
from django_lockstep.lab.simulator.database import clock_offset
from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.interrupt import Interrupt
from django_lockstep.lab.simulator.pool import STUCK_AFTER, PoolResult
from django_lockstep.lab.simulator.worker import WorkerFailure
from django_lockstep.lab.simulator.worker_process import WorkerConfig

__all__ = ["ClusterPool"]

_TICK = 0.1
"""Seconds between two looks at the machines."""
_BEFORE_START = 500_000_000
"""Nanoseconds from the order to start until the start; it has to reach every machine before."""


@dataclass(slots=True, kw_only=True)
class _Machine:
    """One worker of the cluster, with the workers of the pool that run there."""

    address: str
    executor: Executor
    session: str
    """How the names of its workers' sessions begin."""
    numbers: range
    """The workers' numbers in the pool."""
    completed: int = 0
    at_barrier: bool = False
    result: PoolResult | None = None
    lost: str = ""
    """Why it takes no part any more, in words; empty while it does."""

    @property
    def busy(self) -> bool:
        return not self.lost and self.result is None

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note that it is lost if the block finds that."""
        try:
            yield
        except BrokenExecutor as error:
            self.lost = str(error)

    def note(self, glance: Glance) -> None:
        self.completed, self.at_barrier, self.result = glance.completed, glance.at_barrier, glance.result

    def results(self) -> Iterator[tuple[int, Any]]:
        """Yield what its workers returned, by their numbers."""
        yield from zip(self.numbers, self.result.results if self.result else (), strict=False)

    def failures(self) -> Iterator[WorkerFailure]:
        """Yield those of its workers that did not finish: all of them if it is lost."""
        if self.lost:
            reason = f"was on {self.address}, which was lost: {self.lost}"
            for number in self.numbers:
                yield WorkerFailure(worker=number, session=self.session, reason=reason)
        for failure in self.result.worker_failures if self.result else ():
            yield replace(failure, worker=self.numbers[failure.worker])


class ClusterPool:
    """As `WorkerPool`, on the machines of a cluster, for tasks that need no more than its barrier."""

    def __init__(
        self,
        address: str,
        config: WorkerConfig,
        *,
        size: int,
        interrupt: Interrupt,
        stuck_after: float = STUCK_AFTER,
    ) -> None:
        """Share the workers out evenly among those that the scheduler at ``address`` has; else as `WorkerPool`."""
        self.interrupt = interrupt
        self.size = size
        self._address = address
        self._config = config
        self._stuck_after = stuck_after
        self._stack = ExitStack()
        self._names = itertools.count()
        self._cluster: ClusterWorkers
        self._machines: list[_Machine] = []
        self._expected: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        """Start the workers. Raises `SimulationError` if the cluster cannot be used, or a machine refuses the work."""
        with ExitStack() as stack, _explained():
            self._cluster = stack.enter_context(cluster_workers(self._address))
            self._expected = describe(self._alias)
            addresses = self._cluster.addresses[: self.size]
            for first, address in enumerate(addresses):
                self._machines.append(self._open(address, range(first, self.size, len(addresses))))
            self._ask_all(self._machines, look)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End all workers, and what has started them beside those of the cluster."""
        self._stack.close()

    @property
    def completed(self) -> int:
        """How many operations all workers have completed since the pool was made, as far as is known."""
        return sum(machine.completed for machine in self._machines)

    @property
    def places(self) -> str:
        """How many workers run where, in words."""
        return ", ".join(f"{len(machine.numbers)} on {machine.address}" for machine in self._machines)

    def run(self, tasks: Sequence[Task], *, on_tick: Callable[[], None] | None = None) -> PoolResult:
        """Run one task on each worker, as `WorkerPool.run`. A machine that was lost before is replaced first.

        Raises `SimulationError` if there is none to replace it.
        """
        with _explained():
            self._replace_lost()
            for machine in self._machines:
                machine.result, machine.at_barrier = None, False
                self._ask_all([machine], begin, [tasks[number] for number in machine.numbers])
            while busy := [machine for machine in self._machines if machine.busy]:
                self._ask_all(busy, look, **self._orders(busy))
                if on_tick:
                    on_tick()
                time.sleep(_TICK)
        results = dict(pair for machine in self._machines for pair in machine.results())
        failures = (failure for machine in self._machines for failure in machine.failures())
        return PoolResult(
            results=tuple(map(results.get, range(self.size))), payloads=(), worker_failures=tuple(failures)
        )

    def _orders(self, busy: Sequence[_Machine]) -> dict[str, Any]:
        """Return what the next look passes on."""
        if self.interrupt.requested:
            return {"stop": True}
        if all(machine.at_barrier for machine in busy):
            return {"start": time.perf_counter_ns() + clock_offset(self._alias) + _BEFORE_START}
        return {}

    @property
    def _alias(self) -> str:
        if self._config.alias is None:
            raise SimulationError("Workers on a cluster meet in a database, and these have none")
        return self._config.alias

    # Machines

    def _open(self, address: str, numbers: range) -> _Machine:
        # Counted on: sessions of a machine that was lost may outlive it for a moment.
        config = replace(self._config, session=f"{self._config.session}-{next(self._names):02}")
        prepare = functools.partial(
            agent,
            config,
            alias=self._alias,
            size=len(numbers),
            stuck_after=self._stuck_after,
            expected=self._expected,
        )
        executor = self._cluster.executor(address, prepare)
        return _Machine(address=address, executor=executor, session=config.session, numbers=numbers)

    def _replace_lost(self) -> None:
        for place, machine in enumerate(self._machines):
            if machine.lost and not self.interrupt.requested:
                used = [other.address for other in self._machines if not other.lost]
                # One that does nothing else for this pool, if there is one.
                if not (free := sorted(self._cluster.addresses, key=used.count)):
                    raise SimulationError(f"The cluster at {self._address!r} has no worker left")
                self._machines[place] = self._open(free[0], machine.numbers)

    def _ask_all(self, machines: Sequence[_Machine], function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Have all of them call the function at the same time, and note what they answer."""
        asked: list[tuple[_Machine, Future[Any]]] = []
        for machine in machines:
            with machine.noted():
                asked.append((machine, machine.executor.submit(function, *args, **kwargs)))
        for machine, future in asked:
            with machine.noted():
                answer = future.result()
                if isinstance(answer, Glance):
                    machine.note(answer)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except ClusterUnavailable as error:
        raise SimulationError(str(error)) from error
