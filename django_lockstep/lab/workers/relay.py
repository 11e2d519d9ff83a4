"""What runs in a worker of Dask: it passes tasks on to processes of its own, and their answers back.

Not in the worker itself, which has other work, several threads, and perhaps no Django; it need not understand what it
passes on.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import BrokenExecutor
from multiprocessing.connection import Connection
from typing import Any

_GRACE = 10.0
"""Seconds that a process has to drop its database."""


class _Child:
    """A process that works; busy from its start until it has answered."""

    def __init__(self, start: bytes) -> None:
        self.busy = True
        self._socket, theirs = socket.socketpair()
        self._pipe: Connection[Any, Any] = Connection(os.dup(self._socket.fileno()))
        with theirs:
            # Not multiprocessing: workers of Dask are daemonic, and may have no children of that kind.
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and a module of this package
                [sys.executable, "-m", "django_lockstep.lab.workers.child", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)},
                start_new_session=True,  # Ctrl-C is for the worker, which ends it
            )
        with contextlib.suppress(OSError):  # it has ended already: `ask` says so
            self._pipe.send_bytes(start)

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def ask(self, task: bytes) -> bytes:
        self._pipe.send_bytes(task)
        return self._pipe.recv_bytes()

    def close(self) -> None:
        # Seen by the process, and by the thread that waits for its answer.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_lock = threading.Lock()
_children: dict[str, list[_Child]] = {}
"""The processes by job."""


def pass_on(job: str, start: bytes, task: bytes) -> bytes:
    """Have a process of this job do the task, and return its answer; ``start`` is what a new one is sent first.

    Raises ``BrokenExecutor`` if the process ends before.
    """
    child = _take(job, start)
    try:
        return child.ask(task)
    except (EOFError, OSError) as error:
        child.close()
        raise BrokenExecutor(f"a process on {socket.gethostname()} that worked has ended by itself") from error
    finally:
        child.busy = False


def close(job: str) -> None:
    """End the processes of this job, which drop their databases."""
    with _lock:
        children = _children.pop(job, [])
    for child in children:
        child.close()


def _take(job: str, start: bytes) -> _Child:
    with _lock:
        children = _children.setdefault(job, [])
        children[:] = [child for child in children if child.lives]
        for child in children:
            if not child.busy:
                child.busy = True
                return child
        children.append(_Child(start))
        return children[-1]
