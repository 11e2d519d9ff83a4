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
from unittest import mock


def process_context() -> BaseContext:
    """Return a context that starts processes: a running fork server with Django, or spawning where there is no fork."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["django_lockstep.lab.simulator.preload"])
    # From the environment alone the fork server takes its import path; there the current folder has a name.
    path = os.pathsep.join(folder or os.curdir for folder in sys.path)
    with no_interrupt(), mock.patch.dict(os.environ, {"PYTHONPATH": path}):
        # Started now, while SIGINT is blocked and the import path is in the environment: it inherits both.
        forkserver.ensure_running()
    return context


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
