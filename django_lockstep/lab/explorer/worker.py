"""What runs in a worker process of an exploration: one branch of the search after the other, on its own database."""

from __future__ import annotations

import functools
import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import django
from django.apps import apps

from django_lockstep.lab.explorer.driver.trace import Limits, Trace
from django_lockstep.lab.explorer.errors import RestartSearch, Stuck
from django_lockstep.lab.explorer.options import SessionOptions
from django_lockstep.lab.explorer.retries import play_next, require_steered
from django_lockstep.lab.explorer.search.branches import Branch
from django_lockstep.lab.explorer.session import Learned, exploration_session
from django_lockstep.lab.explorer.tables.scratch import enter_scratch
from django_lockstep.lab.explorer.tally import JudgedRun, judge_run
from django_lockstep.lab.scenario import Scenario

__all__ = ["Answer", "Databases", "WorkerConfig", "play_branch", "start_worker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """What a worker explores; sent pickled."""

    load: Callable[[], Scenario]
    """Returns the scenario."""
    options: SessionOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a branch."""

    branch: Branch
    judged: JudgedRun | None
    """None if it did not end in time, or if it showed something that makes earlier runs invalid."""
    learned: Learned
    """What the worker knows now."""


class Databases(Protocol):
    """A queue of the databases that no worker has taken yet: names by alias."""

    def get(self) -> Mapping[str, str]:
        """Take the next one."""


_given: list[tuple[WorkerConfig, Learned, Databases]] = []
"""What this process was started with; empty in a process that is not a worker."""


def start_worker(config: WorkerConfig, learned: Learned, databases: Databases) -> None:
    """Prepare this process for `play_branch`."""
    # Ctrl-C reaches the whole process group; the parent decides when workers stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if not apps.ready:  # the fork server has set Django up already, a spawned process has not
        django.setup()
    _given.append((config, learned, databases))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def play_branch(branch: Branch, *, seconds: float | None) -> Answer:
    """Play a branch, for at most so many seconds. Raises as `explore` does; ``RuntimeError`` for unpicklable errors."""
    try:
        return _worker().play(branch, seconds=seconds)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301 - made right here
        except Exception:  # noqa: BLE001 - whatever its constructor raises
            raise RuntimeError("".join(traceback.format_exception(error))) from None
        raise


@functools.cache
def _worker() -> _Worker:
    """Return this process's worker. It is opened with the first branch, whose answer is the error if that fails."""
    ((config, learned, databases),) = _given
    enter_scratch(databases.get())
    return _Worker(config, learned)


class _Worker:
    """An exploration session that stays open until the process ends, and its database is dropped."""

    def __init__(self, config: WorkerConfig, learned: Learned) -> None:
        self._config = config
        self._learned = learned
        self._before: Trace | None = None
        self._context = exploration_session(config.load(), config.options)
        self._session = self._context.__enter__()  # for as long as the process lives
        self._session.learn(learned)
        if config.options.warm_up:
            self._session.warm_up()

    def play(self, branch: Branch, *, seconds: float | None) -> Answer:
        session = self._session
        deadline = None if seconds is None else time.monotonic() + seconds
        session.controller.limits = Limits(max_steps=self._config.options.max_steps, deadline=deadline)
        try:
            judged = self._play(branch)
        except RestartSearch:
            judged = None
        except Stuck as trouble:
            raise Stuck(f"{trouble}{session.controller.give_up()}") from None
        valid = session.learned == self._learned
        return Answer(branch=branch, judged=judged if valid else None, learned=session.learned)

    def _play(self, branch: Branch) -> JudgedRun | None:
        fixture, trace = play_next(self._session, branch, self._before)
        if trace.out_of_time:
            return None
        self._before = trace
        ended = self._session.result(fixture, trace) if trace.complete else None
        judged = judge_run(self._session, trace, ended)
        # After each run, because nobody knows which one is the last.
        require_steered(self._session, trace)
        return judged
