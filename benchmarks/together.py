"""Processes that begin together, each with a connection of its own, and give back what they have counted."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import wait
from threading import BrokenBarrierError
from typing import Any, TypeVar

from tests.support.processes import processes

R = TypeVar("R")

START = 2.0
"""Seconds that one process takes at most to start, beside all others."""


def run_together(prepare: Callable[[], Callable[[int], R]], *, workers: int) -> list[R]:
    """Prepare in each of the processes; when all have, call what they prepared, with a number for each from 0.

    They work on the database of this process. Raises the error of a process that fails.
    """
    # spawn: a fork would copy the threads' locks of this process.
    with multiprocessing.get_context("spawn").Manager() as manager, processes(workers) as pool:
        begin = manager.Barrier(workers, timeout=START * workers + 60)
        work = [pool.submit(_work, prepare, begin) for _ in range(workers)]
        wait(work)
        errors = [error for done in work if (error := done.exception())]
        # Those that found the others missing say less than the one that is.
        for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
            raise error
        return [done.result() for done in work]


def _work(prepare: Callable[[], Callable[[int], R]], begin: Any) -> R:
    try:
        run = prepare()
        number = begin.wait()
    except BaseException:
        begin.abort()
        raise
    return run(number)
