"""A command that runs under a lease: its process group, the signals it gets, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO

from django_lockstep.leases.descendants import adopted, children, descendants, reap

__all__ = ["Interrupted", "Job", "forwarded_signals", "masked"]

_FORWARDED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGWINCH")
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_LOOK = 0.5
"""Seconds at most after which a signal is handed on."""
_PAUSE, _PATIENCE = 0.02, 5.0
"""Seconds between two looks for what is left, and until what is not ended by a SIGKILL is given up."""


class Interrupted(KeyboardInterrupt):
    """A signal came before the job was allowed to begin; ``number`` says which.

    A ``KeyboardInterrupt``, because the driver then cancels its statement and waits for the end of that.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def masked(command: Sequence[str]) -> list[str]:
    """Return the command for others to see: its program, and asterisks for each argument, which may be a password."""
    return [*command[:1], *("***" for _ in command[1:])]


class Job:
    """A command in a session and process group of its own, so that signals reach all of it and nothing else.

    What it leaves behind is ended with it: its group, and on Linux all that descends from it.
    """

    def __init__(self, command: Sequence[str], *, grace: float) -> None:
        self._command = list(command)
        self._grace = grace
        self._process: subprocess.Popen[bytes] | None = None
        self._not_its: set[int] = set()
        self._pending: list[int] = []
        self._may_begin = self._was_interrupted = False
        self._killer: threading.Thread | None = None
        self._is_over = False
        self._lock = threading.Lock()

    def allow(self) -> None:
        """Let the command begin: signals are for it from here on; before, they interrupt."""
        self._may_begin = True

    def run(self, **environment: str) -> int:
        """Run the command to its end and return its exit code, as a shell would: 128 + N where signal N ended it.

        127 where there is no such program, 126 where it cannot be run. The environment is in addition to our own.
        """
        with _orphan_killer() as tell, adopted():
            self._not_its = children()
            try:
                self._process = subprocess.Popen(  # noqa: S603 - the user's own
                    self._command, start_new_session=True, env={**os.environ, **environment}
                )
            except FileNotFoundError:
                return _NOT_FOUND
            except OSError:
                return _NOT_EXECUTABLE
            tell(self._process.pid)
            for number in self._pending:
                self.send(number)
            code = self._end_of(self._process)
            self._wait_for_killer()
            self._finish()
        return code if code >= 0 else 128 - code

    def _end_of(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the command's end, and return its code.

        In another thread: a signal that comes right before this one would go to sleep in ``waitpid`` does not wake it,
        and would be handed on when the command had ended.
        """
        waiter = threading.Thread(target=process.wait, name="wait for the command", daemon=True)
        waiter.start()
        while waiter.is_alive():
            waiter.join(_LOOK)
        return process.wait()

    def receive(self, number: int) -> None:
        """Send the signal on; raise `Interrupted`, once, where there is nothing yet that it could be for."""
        if self._may_begin:
            self.send(number)
        elif number != getattr(signal, "SIGWINCH", None) and not self._was_interrupted:
            self._was_interrupted = True
            raise Interrupted(number)

    def send(self, number: int) -> None:
        """Send the signal to the group; to be, if the command has yet to begin."""
        if self._process is None:
            self._pending.append(number)
        elif not self._is_over:
            _signal_group(self._process.pid, number)

    def kill(self) -> None:
        """Ask all of it to end (SIGTERM), and after the grace make it (SIGKILL); return at once."""
        # Under the lock, because the command may end meanwhile, and `run` has to wait for the end of the whole group.
        with self._lock:
            if self._killer is None and not self._is_over:
                self._killer = threading.Thread(target=self._finish, name="end of the command", daemon=True)
                self._killer.start()

    def _wait_for_killer(self) -> None:
        with self._lock:
            self._is_over, killer = True, self._killer
        if killer is not None:
            killer.join()

    def _finish(self) -> None:
        """Have nothing of it left; give up what does not end of a SIGKILL either."""
        for number, patience in ((signal.SIGTERM, self._grace), (signal.SIGKILL, _PATIENCE)):
            deadline = time.monotonic() + patience
            self._signal_all(number)
            while self._is_left() and time.monotonic() < deadline:
                time.sleep(_PAUSE)
                if number == signal.SIGKILL:
                    self._signal_all(number)  # also what was born meanwhile

    def _signal_all(self, number: int) -> None:
        if self._process is None:
            self._pending.append(number)
            return
        group = self._process.pid
        _signal_group(group, number)
        for pid in descendants(without=self._not_its):
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) != group:
                    os.kill(pid, number)

    def _is_left(self) -> bool:
        if self._process is None:
            return False
        reap(without={*self._not_its, self._process.pid})
        return bool(descendants(without=self._not_its)) or _signal_group(self._process.pid, 0)


def _signal_group(group: int, number: int) -> bool:
    """Send the signal to all of the group; return whether there was anybody."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        return True
    return False


@contextmanager
def _orphan_killer() -> Iterator[Callable[[int], None]]:
    """Have a process group killed if this process dies in the block, by a SIGKILL say, and can no longer do it itself.

    A shell waits for the end of a pipe that only this process writes to. What the block is given tells it the group;
    what it is told at last is that all is well.
    """
    script = 'read -r group; read -r word; [ "$word" ] || [ -z "$group" ] || kill -s KILL -- "-$group"'
    watcher = subprocess.Popen(  # noqa: S603 - a constant
        ["/bin/sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        bufsize=0,
    )
    pipe = watcher.stdin
    if pipe is None:
        raise AssertionError("a pipe was asked for")
    try:
        yield lambda group: _write(pipe, f"{group}\n")
    finally:
        _write(pipe, "ended\nended\n")
        watcher.communicate()


def _write(pipe: IO[bytes], line: str) -> None:
    with suppress(BrokenPipeError):
        pipe.write(line.encode())


@contextmanager
def forwarded_signals(job: Job) -> Iterator[None]:
    """Hand the signals of the block, in the main thread, on to the job; see `Job.receive`."""

    def forward(number: int, frame: FrameType | None) -> None:
        job.receive(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]
    before = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
