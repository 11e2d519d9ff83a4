"""How worker processes are started: where the system can, forked from a process that has imported everything already.

That process (multiprocessing's fork server) starts from nothing as a spawned one does and never connects to the
database, so that its children inherit no connection, no thread and no lock. Spawning 64 workers on two processors takes
half a minute of imports, forking them two seconds, and they share the memory of what was imported.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.context import BaseContext

__all__ = ["no_interrupt", "parent_lives", "process_context"]

_PATH = "PYTHONPATH"


def process_context() -> BaseContext:
    """Return a context that starts processes: a running fork server with Django, or spawning where there is no fork."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["django_lockstep.lab.simulator.preload"])
    with no_interrupt(), _path_in_environment():
        # Started now, while SIGINT is blocked and the import path is in the environment: it inherits both.
        forkserver.ensure_running()
    return context


def parent_lives() -> bool:
    """Whether the process that started this one is alive; the fork server's own parent does not count."""
    parent = multiprocessing.parent_process()
    return parent is None or parent.is_alive()


@contextlib.contextmanager
def no_interrupt() -> Iterator[None]:
    """Block SIGINT, which Ctrl-C sends to the whole process group, in a child until the child ignores it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Started here, because it would start with the first process and unblock the signal.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _path_in_environment() -> Iterator[None]:
    """Put this process's import path into the environment, from where alone the fork server takes it."""
    before = os.environ.get(_PATH)
    # In sys.path an empty entry is the current folder; the variable names it.
    os.environ[_PATH] = os.pathsep.join(path or os.curdir for path in sys.path)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_PATH]
        else:
            os.environ[_PATH] = before
