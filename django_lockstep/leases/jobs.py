"""A command that runs under a lease: its process group, its signals, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

_FORWARDED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGWINCH")
_BEGIN = """
import os, signal, sys
for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python has changed
    signal.signal(number, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as under nohup
    signal.signal(signal.SIGINT, signal.SIG_DFL)
pipe, *command = sys.argv[1:]
os.write(int(pipe), b"%d\\n" % os.getpid())
os.close(int(pipe))
try:
    os.execvp(command[0], command)
except FileNotFoundError:
    sys.exit(127)
except OSError:
    sys.exit(126)
"""
"""The command's process tells the watcher its group before it becomes the command, so that at no moment a death of ours
leaves a command without a watcher. Popen's ``preexec_fn`` is not safe while a heartbeat's thread runs."""
_LOOK = 0.5
"""Seconds at most until a signal is forwarded."""
_PAUSE, _PATIENCE = 0.02, 5.0
"""Seconds between two checks for remaining processes, and until processes that survive SIGKILL are given up."""


class Interrupted(KeyboardInterrupt):
    """A signal arrived before the job was allowed to start; ``number`` says which.

    A ``KeyboardInterrupt``, because the driver then cancels its statement and waits for it to end.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Job:
    """A command in its own session and process group, so that signals reach all of it and nothing else.

    Processes that it leaves behind in its group are ended with it; one that has left the group is out of reach.
    """

    def __init__(self, command: Sequence[str], *, grace: float) -> None:
        self._command = list(command)
        self._grace = grace
        self._process: subprocess.Popen[bytes] | None = None
        self._pending: list[int] = []
        self._may_start = self._was_interrupted = False
        self._killer: threading.Thread | None = None
        self._is_over = False
        self._lock = threading.Lock()

    def allow(self) -> None:
        """Let the command start: from now on signals are forwarded to it; before, they interrupt."""
        self._may_start = True

    def run(self, **environment: str) -> int:
        """Run the command to its end and return its exit code, as a shell would: 128 + N where signal N ended it.

        127 for an unknown program, 126 for one that cannot be run. The environment is added to our own.
        """
        with _orphan_killer() as pipe:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own
                [sys.executable, "-I", "-S", "-c", _BEGIN, str(pipe), *self._command],
                pass_fds=[pipe],
                # A session of its own: Ctrl-C in the terminal reaches it once, through us.
                start_new_session=True,
                env={**os.environ, **environment},
            )
            for number in self._pending:
                self.send(number)
            code = self._end_of(self._process)
            with self._lock:
                self._is_over, killer = True, self._killer
            if killer is not None:
                killer.join()
            self._finish()
        return code if code >= 0 else 128 - code

    def _end_of(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the command's end, and return its code.

        Waits in another thread: a signal that arrives right before this thread blocks in ``waitpid`` would not wake it,
        and would be forwarded only after the command's end.
        """
        waiter = threading.Thread(target=process.wait, name="wait for the command", daemon=True)
        waiter.start()
        while waiter.is_alive():
            waiter.join(_LOOK)
        return process.wait()

    def receive(self, number: int) -> None:
        """Forward the signal; before the command is allowed to start, raise `Interrupted` once."""
        if self._may_start:
            self.send(number)
        elif number != getattr(signal, "SIGWINCH", None) and not self._was_interrupted:
            self._was_interrupted = True
            raise Interrupted(number)

    def send(self, number: int) -> None:
        """Send the signal to the group, or keep it until the command starts."""
        if self._process is None:
            self._pending.append(number)
        elif not self._is_over:
            _signal_group(self._process.pid, number)

    def kill(self) -> None:
        """Ask all processes to end (SIGTERM), and force them after the grace period (SIGKILL); return at once."""
        # Under the lock, because the command may end at this moment, and `run` must wait for the end of all its group.
        with self._lock:
            if self._killer is None and not self._is_over:
                self._killer = threading.Thread(target=self._finish, name="end of the command", daemon=True)
                self._killer.start()

    def _finish(self) -> None:
        """End the group's remaining processes; give up those that survive SIGKILL."""
        for number, patience in ((signal.SIGTERM, self._grace), (signal.SIGKILL, _PATIENCE)):
            if self._process is None:
                self._pending.append(number)
                continue
            deadline = time.monotonic() + patience
            is_left = _signal_group(self._process.pid, number)
            while is_left and time.monotonic() < deadline:
                time.sleep(_PAUSE)
                # Killed again: processes may have been started in the meantime.
                is_left = _signal_group(self._process.pid, number if number == signal.SIGKILL else 0)


def _signal_group(group: int, number: int) -> bool:
    """Send the signal to the group; return whether it has a process."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        return True
    return False


@contextmanager
def _orphan_killer() -> Iterator[int]:
    """Kill a process group if this process dies inside the block (by SIGKILL, for example).

    A shell waits for the end of a pipe that only this process writes to. Its first line is the group, which the command
    writes; a last line tells it that the block ended normally. The block gets the pipe.
    """
    script = 'read -r group; read -r word; [ "$word" ] || [ -z "$group" ] || kill -s KILL -- "-$group"'
    watcher = subprocess.Popen(  # noqa: S603 - a constant
        ["/bin/sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    if watcher.stdin is None:
        raise AssertionError("Popen returned no pipe")
    try:
        yield watcher.stdin.fileno()
    finally:
        watcher.communicate(b"ended\nended\n")  # it ignores a watcher that has ended


@contextmanager
def forward_signals(job: Job) -> Iterator[None]:
    """Forward the main thread's signals to the job inside the block; see `Job.receive`."""

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
