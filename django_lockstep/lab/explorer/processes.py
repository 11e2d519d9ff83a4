"""Several processes that explore one race, each on a scratch database of its own.

The process that asks for them has the tree of branches and counts the results; the workers only play branches. They
are an executor: the standard library's on this machine, or the workers of a Dask cluster.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.queues import SimpleQueue

import django
from django.apps import apps
from django.db import connections

from django_lockstep.lab.explorer.driver.trace import Trace
from django_lockstep.lab.explorer.errors import NotExplorable, RestartSearch, Stuck, WorkerDied
from django_lockstep.lab.explorer.options import Options
from django_lockstep.lab.explorer.retries import play_next, require_steered
from django_lockstep.lab.explorer.search.branches import Branch
from django_lockstep.lab.explorer.search.dpor import Search
from django_lockstep.lab.explorer.session import ExplorationSession, Learned, exploration_session
from django_lockstep.lab.explorer.tables.databases import is_scratch
from django_lockstep.lab.explorer.tables.scratch import enter_scratch, further_copies
from django_lockstep.lab.explorer.tally import ExplorationTally, JudgedRun, judge_run
from django_lockstep.lab.scenario import Scenario
from django_lockstep.lab.workers.cluster import cluster_executor
from django_lockstep.lab.workers.errors import ClusterUnavailable
from django_lockstep.lab.workers.processes import process_context
from django_lockstep.lab.workers.same_code import modules_of

_ALONE = 1.0
"""Seconds for which a race is explored without workers: about as long as their start takes, and enough for most."""
_MOST_DEATHS = 3
_GRACE = 2.0
"""Seconds that workers have for the runs in hand when the search has ended; then they are killed."""

ExplorerConfig = tuple[Callable[[], Scenario], Options]
"""What a worker explores: what returns the scenario, and how; sent pickled."""


class Workers:
    """Processes that explore: so many on this machine, or those of a cluster.

    Raises `NotExplorable` if they cannot have databases of their own, or not this scenario.
    """

    def __init__(self, load: Callable[[], Scenario], options: Options) -> None:
        # Runs end the search here alone, by what may be no function of a module.
        config, alias = (load, replace(options, stop_on_first=False)), options.database
        if not is_scratch(connections[alias]):
            raise NotExplorable(
                f"Several processes explore scratch databases only, of which each has its own, and {alias!r} is not "
                "one: use `manage.py explore NAME --processes N` without --database"
            )
        try:
            pickle.dumps(config)
        except Exception as error:
            raise NotExplorable(
                "Several processes explore only what each of them can load: name the race for `manage.py explore NAME "
                "--processes N`, or make the scenario of functions of modules, which can be pickled. This one cannot: "
                f"{error}"
            ) from error
        self.seconds_alone = _ALONE
        self._start: Callable[[Learned], AbstractContextManager[tuple[Executor, int]]] = (
            functools.partial(explorers_here, config, options.processes)
            if options.cluster is None
            else functools.partial(explorers_on_cluster, options.cluster, config)
        )

    def explore(self, session: ExplorationSession, *, search: Search, tally: ExplorationTally) -> None:
        """Play branches until none is left or a limit is reached; at the end no process and no database is left.

        Raises `RestartSearch` when a run has shown something that makes earlier runs invalid, `WorkerDied` if workers
        end by themselves again and again, and as `explore` does.
        """
        lost: list[Branch] = []
        for _ in range(_MOST_DEATHS):
            with self._start(session.learned) as (executor, size):
                players = _Players(
                    executor=executor, size=size, session=session, search=search, tally=tally, waiting=lost
                )
                lost = players.play()
            if not lost:
                return
        raise WorkerDied(
            f"{_MOST_DEATHS} times a process that explored has ended by itself, the last time with {len(lost)} "
            "schedules in hand. The logs of the server and of the system may say why: memory may have been short."
        ) from players.lost_by


@dataclass(slots=True, kw_only=True)
class _Players:
    """Has an executor play the branches of a search, and counts what comes of them."""

    executor: Executor
    size: int
    session: ExplorationSession
    search: Search
    tally: ExplorationTally
    waiting: list[Branch]
    """Branches that were taken and have to be played again."""
    running: dict[Future[Answer], Branch] = field(default_factory=dict)
    lost_by: BrokenExecutor | None = None
    """Why branches were lost."""

    def play(self) -> list[Branch]:
        """Play until no branch is left or a limit is reached; return branches that were lost with a worker."""
        try:
            while self.tally.wants_more():
                self._submit()
                if not self.running or not all(map(self._add, self._finished())):
                    break
        except BrokenExecutor as error:
            self.lost_by = error
            return [*self.running.values(), *self.waiting]
        finally:
            wait(self.running, timeout=_GRACE)
        return []

    def _submit(self) -> None:
        # One more than there are workers, which would otherwise wait a tenth of their time for the next branch. No more
        # than that: what the runs in hand will show is better known before a branch is taken.
        while len(self.running) <= self.size:
            if not self.waiting and (taken := self.search.take()):
                self.waiting.append(taken)
            if not self.waiting:
                return
            branch = self.waiting[-1]
            self.running[self.executor.submit(play_branch, branch, seconds=self._seconds_left())] = branch
            self.waiting.pop()

    def _seconds_left(self) -> float | None:
        # Not the deadline: the clocks of processes may have other beginnings.
        return None if self.tally.deadline is None else self.tally.deadline - time.monotonic()

    def _finished(self) -> Iterator[Answer]:
        # Not for ever: the workers of a cluster may all be gone.
        left = self._seconds_left()
        timeout = None if left is None else max(0.0, left) + _GRACE
        for future in wait(self.running, timeout=timeout, return_when=FIRST_COMPLETED).done:
            answer = future.result()
            # Only now: a branch whose worker died has to be played again.
            del self.running[future]
            yield answer

    def _add(self, answer: Answer) -> bool:
        """Count the run, and return whether to go on."""
        if answer.learned != self.session.learned:
            self.session.learn(answer.learned)
            raise RestartSearch
        if answer.judged is None:
            return False  # the time is over
        self.tally.add(answer.judged, answer.branch)
        self.search.add(answer.branch)
        return self.tally.wants_more()


# Executors whose processes explore: on this machine, or on a Dask cluster.


@contextmanager
def explorers_here(config: ExplorerConfig, size: int, learned: Learned) -> Iterator[tuple[Executor, int]]:
    """Yield an executor of `play_branch` on this machine, and its size; each process has a database of its own."""
    with further_copies(size) as databases:
        context = process_context()
        queue = context.SimpleQueue()
        for names in databases:
            queue.put(names)
        executor = ProcessPoolExecutor(
            size, mp_context=context, initializer=start_worker, initargs=(config, learned, queue)
        )
        try:
            yield executor, size
        finally:
            # Killed, because a worker may be in a statement that does not end; its database is dropped anyway.
            for process in list((executor._processes or {}).values()):
                process.kill()
            executor.shutdown(cancel_futures=True)
            queue.close()


@contextmanager
def explorers_on_cluster(address: str, config: ExplorerConfig, learned: Learned) -> Iterator[tuple[Executor, int]]:
    """Yield the same on a cluster: an executor of `play_branch`, and how many threads that has.

    Raises `NotExplorable` if the cluster cannot be used, or if a worker would explore other code or on other versions.
    """
    prepare, (load, options) = functools.partial(_explorer_there, config, learned), config
    try:
        with cluster_executor(address, prepare, alias=options.database, modules=modules_of(load())) as executor:
            yield executor
    except ClusterUnavailable as error:
        raise NotExplorable(str(error)) from error


@contextmanager
def _explorer_there(config: ExplorerConfig, learned: Learned) -> Iterator[Executor]:
    # On the server that the worker's own settings name: it need not be the one of the process that explores.
    with explorers_here(config, 1, learned) as (executor, _):
        yield executor


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a branch."""

    branch: Branch
    judged: JudgedRun | None
    """None if it did not end in time, or if it showed something that makes earlier runs invalid."""
    learned: Learned
    """What the worker knows now."""


# In a worker process: one branch of the search after the other, on its own database.

_started_with: list[tuple[ExplorerConfig, Learned, SimpleQueue[Mapping[str, str]]]] = []
"""What a worker process was started with, and the databases that no worker has taken yet: names by alias."""


def start_worker(config: ExplorerConfig, learned: Learned, databases: SimpleQueue[Mapping[str, str]]) -> None:
    """Prepare this process for `play_branch`."""
    # Ctrl-C reaches the whole process group; the parent decides when workers stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if not apps.ready:  # the fork server has set Django up already, a spawned process has not
        django.setup()
    _started_with.append((config, learned, databases))


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
    ((config, learned, databases),) = _started_with
    enter_scratch(databases.get())
    return _Worker(config, learned)


class _Worker:
    """An exploration session that stays open until the process ends, and its database is dropped."""

    def __init__(self, config: ExplorerConfig, learned: Learned) -> None:
        self._learned = learned
        self._before: Trace | None = None
        load, options = config
        self._context = exploration_session(load(), options)
        self._session = self._context.__enter__()  # for as long as the process lives
        self._session.learn(learned)
        if options.warm_up:
            self._session.warm_up()

    def play(self, branch: Branch, *, seconds: float | None) -> Answer:
        session = self._session
        session.controller.deadline = None if seconds is None else time.monotonic() + seconds
        try:
            judged = self._play(branch)
        except RestartSearch:
            judged = None
        except Stuck as trouble:
            raise Stuck(f"{trouble}{session.controller.give_up()}") from None
        valid = session.learned == self._learned
        return Answer(branch=branch, judged=judged if valid else None, learned=session.learned)

    def _play(self, branch: Branch) -> JudgedRun | None:
        ended, trace = play_next(self._session, branch, self._before)
        if trace.out_of_time:
            return None
        self._before = trace
        judged = judge_run(self._session, trace, ended)
        # After each run, because no worker knows which one is the last.
        require_steered(self._session, trace)
        return replace(judged, traced=None)
