"""A pool of worker processes: started once, given tasks again and again, replaced when they die, ended with it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, Self

from django_lockstep.lab.simulator import worker_process
from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.interrupt import StopSignal
from django_lockstep.lab.simulator.worker_process import Task, WorkerConnection
from django_lockstep.lab.workers.processes import no_interrupt, process_context

STUCK_AFTER = 70.0
"""Seconds for one operation; more than the longest retry of a strategy."""

_TICK = 0.1
"""Seconds between two checks for silent workers, and between two calls of ``on_tick``."""
_START_DELAY = 300_000
"""Nanoseconds between the parent's message and the common start, for each worker; sending and waking take less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFailure:
    """A worker that did not finish its task."""

    worker: int
    """Its number, from 0."""
    session: str
    """The ``application_name`` of its connection."""
    reason: str
    """What is known of its end, in a line."""

    def __str__(self) -> str:
        return f"worker {self.worker + 1} {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolResult:
    """What came of one call of `WorkerPool.run`."""

    results: tuple[Any, ...]
    """What each task returned, by worker; None for a worker that did not finish, or had no task any more."""
    worker_failures: tuple[WorkerFailure, ...]
    """The workers that did not finish."""


class Worker:
    """The parent's view of one worker process, from its start to its end."""

    def __init__(
        self, config: WorkerConnection, *, number: int, context: BaseContext, stop: Any, completed: Sequence[int]
    ) -> None:
        """Start it; ``stop`` and ``completed``, by worker, are in memory that all processes share."""
        self.number = number
        self.busy = True
        """Whether an answer is still to come."""
        self.at_barrier = False
        self.result: Any = None
        self.failure: WorkerFailure | None = None
        self._session = config.session
        self._completed = completed
        self._last_sign = (completed[number], time.monotonic())
        self.pipe: Connection[Any, Any]
        self.pipe, child_pipe = context.Pipe()
        # Closed in the parent after the start: the pipe breaks only when its last end is closed, and that must be when
        # the child is gone.
        with child_pipe:
            # Daemonic: should the parent crash, multiprocessing ends them with it.
            self.process: BaseProcess = context.Process(  # type: ignore[attr-defined]
                target=worker_process.main,
                args=(config, child_pipe),
                kwargs={"number": number, "stop": stop, "completed": completed},
                name=config.session,
                daemon=True,
            )
            with no_interrupt():
                self.process.start()

    def send(self, message: object) -> None:
        """Send a task, or the instant (``time.perf_counter_ns``) at which the worker is to leave the barrier."""
        self._record_sign_of_life()
        self.busy, self.at_barrier = True, False
        try:
            self.pipe.send(message)
        except OSError:
            self._reap()

    def receive(self) -> None:
        """Take one message from the worker; call it when `pipe` is readable."""
        try:
            kind, content = self.pipe.recv()
        # The other end is closed: the process has ended, or is about to.
        except (EOFError, OSError):
            self._reap()
            return
        self._record_sign_of_life()
        if kind == "at barrier":
            self.at_barrier = True
        elif kind == "failed":
            self.kill(f"failed: {content}")
        else:
            self.result, self.busy = content, False

    def kill_if_stuck(self, seconds: float) -> None:
        """Kill the worker if it is at work and has neither sent nor completed anything for so many seconds."""
        if not self.busy or self.at_barrier:
            return
        if self._completed[self.number] != self._last_sign[0]:
            self._record_sign_of_life()
        elif time.monotonic() - self._last_sign[1] > seconds:
            self.kill(f"was stuck: nothing finished for {seconds:g} s, so it was killed")

    def kill(self, reason: str) -> None:
        """End the process at once; what it did since its last answer is unknown."""
        # SIGKILL, because a stuck worker may sit in a call of the driver, which no handler in Python can interrupt.
        self.process.kill()
        self._reap(reason)

    def close(self, *, deadline: float) -> None:
        """Close the pipe, give the process until ``deadline`` (``time.monotonic``) to leave, and then kill it."""
        self.pipe.close()
        self.process.join(max(0, deadline - time.monotonic()))
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()

    def _record_sign_of_life(self) -> None:
        self._last_sign = (self._completed[self.number], time.monotonic())

    def _reap(self, reason: str = "") -> None:
        # The pipe breaks a moment before the process is gone.
        self.process.join(5)
        exitcode = self.process.exitcode
        if exitcode is None:
            end = "closed its connection"
        elif exitcode < 0:
            end = f"was killed by {signal.Signals(-exitcode).name}"
        else:
            end = f"ended with exit status {exitcode}"
        self.failure = WorkerFailure(worker=self.number, session=self._session, reason=reason or end)
        self.busy = self.at_barrier = False


class WorkerPool:
    """A context manager: its workers exist inside the block, and have ended after it, however it is left."""

    def __init__(
        self,
        config: WorkerConnection,
        *,
        size: int,
        interrupt: StopSignal,
        stuck_after: float = STUCK_AFTER,
        grace: float = 3.0,
    ) -> None:
        """Every worker gets ``config`` with its number in the session's name.

        ``stuck_after``: seconds without a completed operation after which a worker counts as stuck. ``grace``: seconds
        that an interrupted worker has for the operation in hand.
        """
        self.interrupt = interrupt
        self.size = size
        self.alias = config.alias
        self.stuck_after = stuck_after
        self.workers: list[Worker] = []
        self._config = config
        self._grace = grace
        self._context = process_context()
        # Raw, without locks: each worker writes its own place only, and a killed process would keep a lock for ever.
        self._stop: Any = self._context.RawValue("b", 0)
        self._completed: Any = self._context.RawArray("Q", size)
        self._started = 0

    def __enter__(self) -> Self:
        """Start the workers and wait until all are connected. Raises `SimulationError` if one of them cannot."""
        with ExitStack() as stack:
            stack.callback(self._close)
            if not self.interrupt.requested:
                self.workers += [self._start(number) for number in range(self.size)]
            self._await_answers()
            failures = [worker.failure for worker in self.workers if worker.failure]
            if failures and not self.interrupt.requested:
                ready = len(self.workers) - len(failures)
                raise SimulationError(f"Only {ready} of {len(self.workers)} workers could start: {failures[0]}")
            stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """End all workers; they leave by themselves if nothing went wrong."""
        self._close(timeout=5 if error[0] is None else 0)

    @property
    def completed(self) -> int:
        """How many operations all workers have completed since the pool was made."""
        return sum(self._completed)

    def run(self, tasks: Sequence[Task], *, on_tick: Callable[[], None] | None = None) -> PoolResult:
        """Run one task on each worker; those that wait at the barrier are released together.

        Workers that died earlier are replaced first; if one dies, the others go on. ``on_tick`` is called every tenth
        of a second.
        """
        for worker in self.workers:
            if worker.failure and not self.interrupt.requested:
                worker.close(deadline=0)
                self.workers[worker.number] = self._start(worker.number)
        self._await_answers()
        for worker, task in zip(self.workers, tasks, strict=True):
            worker.result = None
            if not (worker.failure or self.interrupt.requested):
                worker.send(task)
        self._await_answers(on_tick)
        # Only when all have answered: each worker reads it between two operations.
        self._stop.value = 0
        return PoolResult(
            results=tuple(worker.result for worker in self.workers),
            worker_failures=tuple(worker.failure for worker in self.workers if worker.failure),
        )

    def _await_answers(self, on_tick: Callable[[], None] | None = None) -> None:
        """Receive messages and release the barrier until every worker has answered or is gone."""
        deadline, next_tick = None, 0.0
        while unfinished := [worker for worker in self.workers if worker.busy]:
            if deadline is None and self.interrupt.requested:
                # Asked first, and killed only after the grace: a worker that ends its operation keeps what it has
                # counted, and no statement is left running in the server.
                deadline = time.monotonic() + self._grace
                self._stop.value = 1
            # The barrier waits neither for workers that died, nor for others that are to stop.
            is_open = deadline is not None or all(worker.at_barrier for worker in unfinished)
            start = time.perf_counter_ns() + _START_DELAY * self.size
            for worker in unfinished:
                if worker.at_barrier and is_open:
                    worker.send(start)
                elif deadline is not None and time.monotonic() > deadline:
                    worker.kill("did not stop in time, so it was killed")
            self._receive(unfinished)
            if on_tick and time.monotonic() >= next_tick:
                on_tick()
                next_tick = time.monotonic() + _TICK

    def _receive(self, workers: Sequence[Worker]) -> None:
        # With a timeout, because a stuck worker sends nothing, and a signal does not end it.
        ready = wait([worker.pipe for worker in workers if worker.busy], timeout=_TICK)
        for worker in workers:
            if worker.pipe in ready:
                worker.receive()
            worker.kill_if_stuck(self.stuck_after)

    def _start(self, number: int) -> Worker:
        # Counted on, not numbered by place: the session of a dead worker may outlive it for a moment.
        self._started += 1
        config = replace(self._config, session=f"{self._config.session}-{self._started:05}")
        context = self._context
        return Worker(config, number=number, context=context, stop=self._stop, completed=self._completed)

    def _close(self, *, timeout: float = 0) -> None:
        deadline = time.monotonic() + timeout
        for worker in self.workers:
            worker.pipe.close()  # all at once, so that they leave at the same time
        for worker in self.workers:
            worker.close(deadline=deadline)
        self.workers.clear()
