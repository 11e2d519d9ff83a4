"""A process beside a worker of Dask: ``python -m ... DESCRIPTOR``, started by `relay`; it has an executor do the work.

It ends when the worker closes the pipe or dies, also in the middle of a task, or when it has had nothing to do for a
minute: who asked for it may be gone.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import platform
import socket
import sys
from concurrent.futures import BrokenExecutor, Executor, Future
from multiprocessing.connection import Connection
from typing import Any

import django

from django_lockstep.errors import LockstepError
from django_lockstep.lab.workers.errors import ClusterUnavailable
from django_lockstep.lab.workers.same_code import describe_code, require_same

_IDLE = 60.0
"""Seconds without a task after which the process ends."""


def main(descriptor: int) -> None:
    """Answer the tasks that come through this end of a pipe, by the executor of the context that comes first."""
    pipe: Connection[Any, Any] = Connection(descriptor)
    with contextlib.suppress(EOFError, ConnectionError):
        try:
            _serve(pipe)
        except (EOFError, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever keeps it from starting is the answer
            reason = str(error) if isinstance(error, LockstepError) else f"{type(error).__name__}: {error}"
            refusal = ClusterUnavailable(f"A worker on {platform.node()} cannot do this work: {reason}")
            pipe.send_bytes(pickle.dumps((False, refusal)))
            pipe.poll(_IDLE)
    # Not an ordinary end: threads of the code that it loaded may not end by themselves.
    os._exit(0)


def _serve(pipe: Connection[Any, Any]) -> None:
    expected, alias, modules, prepare = pickle.loads(pipe.recv_bytes())  # noqa: S301 - of the process that asks
    # Only then what it was sent, whose modules may have models.
    django.setup()
    require_same(expected, describe_code(alias, modules))
    with pickle.loads(prepare)() as executor:  # noqa: S301 - as above
        _work_until_closed(pipe, executor)


def _work_until_closed(pipe: Connection[Any, Any], executor: Executor) -> None:
    future: Future[Any] | None = None
    while pipe.poll(_IDLE) or (future is not None and not future.done()):
        if pipe.poll():
            function, args, kwargs = pickle.loads(pipe.recv_bytes())  # noqa: S301 - as above
            future = executor.submit(function, *args, **kwargs)
            future.add_done_callback(functools.partial(_answer, pipe))


def _answer(pipe: Connection[Any, Any], future: Future[Any]) -> None:
    error = future.exception()
    # What is lost because the other end is closed, nobody waits for.
    with contextlib.suppress(OSError):
        if isinstance(error, BrokenExecutor):
            # The task is lost; this process leaves the context, and is replaced.
            with socket.socket(fileno=os.dup(pipe.fileno())) as both:
                both.shutdown(socket.SHUT_RDWR)
        else:
            pipe.send_bytes(pickle.dumps((True, future.result()) if error is None else (False, error)))


if __name__ == "__main__":
    main(int(sys.argv[1]))
