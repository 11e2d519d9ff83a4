"""The parent's view of one worker process."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from enum import Enum
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from django_lockstep.lab.simulator import worker
from django_lockstep.lab.simulator.desk import Arrived, Done, Failed, Task
from django_lockstep.lab.simulator.processes import no_interrupt
from django_lockstep.lab.simulator.worker import Post

__all__ = ["Casualty", "Member", "Shared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Casualty:
    """A worker that did not come to an end."""

    worker: int
    """Its number, from 0."""
    session: str
    """The ``application_name`` of its connection."""
    reason: str
    """What is known of its end, in a line."""

    def __str__(self) -> str:
        return f"worker {self.worker + 1} {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Memory that the parent and all workers see."""

    stop: Any
    """Its ``value`` is 1 when all are to end."""
    beats: Any
    """How much each worker has done since it started."""

    @classmethod
    def of(cls, context: BaseContext, *, workers: int) -> Shared:
        """Return memory for so many workers."""
        return cls(stop=context.RawValue("b", 0), beats=context.RawArray("Q", workers))


class State(Enum):
    """What a worker is doing."""

    BUSY = "busy"
    WAITING = "at the barrier"
    IDLE = "idle"
    GONE = "gone"


class Member:
    """One worker process, from its start to its end."""

    def __init__(self, post: Post, shared: Shared, *, number: int, context: BaseContext) -> None:
        self.post = post
        self.number = number
        self.state = State.BUSY
        self.result: Any = None
        self.notes: list[Any] = []
        self.casualty: Casualty | None = None
        self._shared = shared
        self._reason = ""
        self._seen = (shared.beats[number], time.monotonic())
        self.pipe: Connection[Any, Any]
        self.pipe, theirs = context.Pipe()
        with theirs:
            facts = {"number": number, "stop": shared.stop, "beats": shared.beats}
            # Daemonic: should the parent crash, multiprocessing ends them with it.
            self.process: BaseProcess = context.Process(  # type: ignore[attr-defined]
                target=worker.main, args=(post, theirs), kwargs=facts, name=post.session, daemon=True
            )
            with no_interrupt():
                self.process.start()

    @property
    def unfinished(self) -> bool:
        """Whether an answer is still to come."""
        return self.state in {State.BUSY, State.WAITING}

    def give(self, task: Task | None) -> None:
        """Hand over a task, if there is one, and forget what the last one came to."""
        self.result, self.notes = None, []
        if task is not None and self.state is not State.GONE:
            self._send(task)

    def release(self, start: int | None) -> None:
        """Let the worker leave the barrier at this instant (``time.perf_counter_ns``); None: go home."""
        self._send(start)

    def hear(self) -> None:
        """Take in what the worker says; call it when `pipe` is readable."""
        try:
            message: Arrived | Failed | Done = self.pipe.recv()
        except (EOFError, OSError):
            self._bury()
            return
        self._signs_of_life()
        if isinstance(message, Arrived):
            self.notes.append(message.note)
            self.state = State.WAITING
        elif isinstance(message, Failed):
            self.kill(f"failed: {message.reason}")
        else:
            self.result, self.state = message.result, State.IDLE

    def check_silence(self, patience: float) -> None:
        """Kill the worker if it is busy and nothing was heard or seen of it for so many seconds."""
        if self.state is not State.BUSY:
            return
        if self._shared.beats[self.number] != self._seen[0]:
            self._signs_of_life()
        elif time.monotonic() - self._seen[1] > patience:
            self.kill(f"was stuck: nothing finished for {patience:g} s, so it was killed")

    def kill(self, reason: str) -> None:
        """End the process at once; what it did since its last answer is unknown."""
        self._reason = self._reason or reason
        self.process.kill()
        self._bury()

    def close(self, *, deadline: float) -> None:
        """Hang up, give the process until ``deadline`` (``time.monotonic``) to leave, and end it if it has not."""
        self.pipe.close()
        self.process.join(max(0, deadline - time.monotonic()))
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()

    def _send(self, message: object) -> None:
        self._signs_of_life()
        self.state = State.BUSY
        try:
            self.pipe.send(message)
        except OSError:
            self._bury()

    def _signs_of_life(self) -> None:
        self._seen = (self._shared.beats[self.number], time.monotonic())

    def _bury(self) -> None:
        # The pipe breaks a moment before the process is gone.
        self.process.join(5)
        reason = self._reason or _end_of(self.process.exitcode)
        self.casualty = Casualty(worker=self.number, session=self.post.session, reason=reason)
        self.state = State.GONE


def _end_of(exitcode: int | None) -> str:
    if exitcode is None:
        return "hung up"
    if exitcode < 0:
        return f"was killed by {signal.Signals(-exitcode).name}"
    return f"ended with exit status {exitcode}"
