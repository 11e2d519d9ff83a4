"""A command that runs under a lease: its process group, the signals it gets, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO

__all__ = ["Job", "forwarded_signals"]

_FORWARDED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGWINCH")
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


class Job:
    """A command in a session and process group of its own, so that signals reach all of it and nothing else."""

    def __init__(self, command: Sequence[str], *, grace: float) -> None:
        self._command = list(command)
        self._grace = grace
        self._process: subprocess.Popen[bytes] | None = None
        self._pending: list[int] = []
        self._killer: threading.Thread | None = None
        self._is_over = False
        self._lock = threading.Lock()

    def run(self) -> int:
        """Run the command to its end and return its exit code, as a shell would: 128 + N where signal N ended it.

        127 where there is no such program, 126 where it cannot be run.
        """
        with _orphan_killer() as tell:
            try:
                self._process = subprocess.Popen(self._command, start_new_session=True)  # noqa: S603 - the user's own
            except FileNotFoundError:
                return _NOT_FOUND
            except OSError:
                return _NOT_EXECUTABLE
            tell(self._process.pid)
            for number in self._pending:
                self.send(number)
            code = self._process.wait()
            self._wait_for_killer()
        return code if code >= 0 else 128 - code

    def send(self, number: int) -> None:
        """Send the signal to the group; to be, if the command has yet to begin."""
        if self._process is None:
            self._pending.append(number)
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Ask the group to end (SIGTERM), and after the grace make it (SIGKILL); return at once."""
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
        self.send(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            if self._process is not None:
                self._process.wait(self._grace)
        self.send(signal.SIGKILL)


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
    """Hand the signals of the block, in the main thread, on to the job."""

    def forward(number: int, frame: FrameType | None) -> None:
        job.send(number)

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
