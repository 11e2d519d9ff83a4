"""The parent's view of one worker process."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, cast

from django_lockstep.lab.simulator import worker_process
from django_lockstep.lab.simulator.channel import Message, Task
from django_lockstep.lab.simulator.worker_process import WorkerConnection
from django_lockstep.lab.workers.processes import no_interrupt

__all__ = ["Worker", "WorkerFailure", "WorkerState"]


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


class WorkerState(Enum):
    """What a worker is doing."""

    BUSY = "busy"
    AT_BARRIER = "at the barrier"
    IDLE = "idle"
    GONE = "gone"


class Worker:
    """One worker process, from its start to its end."""

    def __init__(
        self, config: WorkerConnection, *, number: int, context: BaseContext, stop: Any, completed: Sequence[int]
    ) -> None:
        """Start it; ``stop`` and ``completed``, by worker, are in memory that all processes share."""
        self.config = config
        self.number = number
        self.state = WorkerState.BUSY
        self.result: Any = None
        self.failure: WorkerFailure | None = None
        self._completed = completed
        self._reason = ""
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

    @property
    def unfinished(self) -> bool:
        """Whether an answer is still to come."""
        return self.state in {WorkerState.BUSY, WorkerState.AT_BARRIER}

    def assign(self, task: Task | None) -> None:
        """Forget the last task's result, and send the next task, if there is one."""
        self.result = None
        if task is not None and self.state is not WorkerState.GONE:
            self._send(task)

    def release(self, start: int | None) -> None:
        """Let the worker leave the barrier at this instant (``time.perf_counter_ns``); None cancels its task."""
        self._send(start)

    def receive(self) -> None:
        """Take one message from the worker; call it when `pipe` is readable."""
        try:
            kind, content = cast("Message", self.pipe.recv())
        # The other end is closed: the process has ended, or is about to.
        except (EOFError, OSError):
            self._reap()
            return
        self._record_sign_of_life()
        if kind == "at barrier":
            self.state = WorkerState.AT_BARRIER
        elif kind == "failed":
            self.kill(f"failed: {content}")
        else:
            self.result, self.state = content, WorkerState.IDLE

    def kill_if_stuck(self, seconds: float) -> None:
        """Kill the worker if it is busy and has neither sent nor completed anything for so many seconds."""
        if self.state is not WorkerState.BUSY:
            return
        if self._completed[self.number] != self._last_sign[0]:
            self._record_sign_of_life()
        elif time.monotonic() - self._last_sign[1] > seconds:
            self.kill(f"was stuck: nothing finished for {seconds:g} s, so it was killed")

    def kill(self, reason: str) -> None:
        """End the process at once; what it did since its last answer is unknown."""
        self._reason = self._reason or reason
        # SIGKILL, because a stuck worker may sit in a call of the driver, which no handler in Python can interrupt.
        self.process.kill()
        self._reap()

    def close(self, *, deadline: float) -> None:
        """Close the pipe, give the process until ``deadline`` (``time.monotonic``) to leave, and then kill it."""
        self.pipe.close()
        self.process.join(max(0, deadline - time.monotonic()))
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()

    def _send(self, message: object) -> None:
        self._record_sign_of_life()
        self.state = WorkerState.BUSY
        try:
            self.pipe.send(message)
        except OSError:
            self._reap()

    def _record_sign_of_life(self) -> None:
        self._last_sign = (self._completed[self.number], time.monotonic())

    def _reap(self) -> None:
        # The pipe breaks a moment before the process is gone.
        self.process.join(5)
        exitcode = self.process.exitcode
        if exitcode is None:
            reason = "closed its connection"
        elif exitcode < 0:
            reason = f"was killed by {signal.Signals(-exitcode).name}"
        else:
            reason = f"ended with exit status {exitcode}"
        self.failure = WorkerFailure(worker=self.number, session=self.config.session, reason=self._reason or reason)
        self.state = WorkerState.GONE
