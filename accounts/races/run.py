"""Simulations of the accounts' strategies, from the choice to the report."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, TextIO, TypeAlias

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import DatabaseError, InterfaceError, OperationalError, connections

from accounts.models import AbstractAccount
from accounts.races.fixture import Fixture, PurgeError, mark_running, new_name
from accounts.races.load import AccountTrial, Workload, joint_name
from accounts.strategies import STRATEGIES, Strategy
from django_lockstep.lab.simulator.advice import advice_on_load, advice_on_sweep
from django_lockstep.lab.simulator.database import (
    end_sessions,
    environment,
    require_connections,
    require_row_locks,
    require_tables,
)
from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.interrupt import StopSignal
from django_lockstep.lab.simulator.load_plan import LoadPlan, Sweep
from django_lockstep.lab.simulator.pool import STUCK_AFTER, WorkerPool
from django_lockstep.lab.simulator.progress import Lane, LaneWatch, show_progress
from django_lockstep.lab.simulator.report import LoadReport, LoadRow
from django_lockstep.lab.simulator.trials import rotate, run_trials
from django_lockstep.lab.simulator.worker_process import WorkerConnection
from django_lockstep.lab.wording import listed

NAMES = tuple(STRATEGIES)
"""Every strategy there is, by name."""

LoadSize: TypeAlias = tuple[int | None, LoadPlan, Workload]
"""The load at one size of a sweep; at None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Which strategies run, and where."""

    strategies: tuple[str, ...]
    """The names, in the order of the report."""
    model: type[AbstractAccount]
    """The accounts' model."""
    using: str
    """The database."""
    keep: bool = False
    """Whether the accounts are left in the database."""
    mixed: bool = False
    """Whether all pairs of them race, each on accounts that the two share."""

    @property
    def contenders(self) -> list[tuple[Strategy, ...]]:
        """What races under a load: strategies for this model and database, or pairs of them."""
        bound = (STRATEGIES[name].bound(model=self.model, using=self.using) for name in self.strategies)
        return list(combinations(bound, 2 if self.mixed else 1))

    @property
    def names(self) -> tuple[str, ...]:
        """What the rows of the report are called."""
        return tuple(map(joint_name, self.contenders))

    @contextlib.contextmanager
    def fixture(self, notes: list[str], *, workers: int) -> Iterator[tuple[Fixture, WorkerConnection, dict[str, Any]]]:
        """Create the fixture, and remove it whatever happens in the block; notes are added for the report.

        With it come the workers' connection and what the figures depend on. Raises `SimulationError` where this
        database cannot serve so many workers.
        """
        require_row_locks(self.using)
        require_connections(self.using, workers)
        models = (self.model, self.model.entry_model(), get_user_model())
        require_tables(self.using, [model._meta.app_label for model in models])
        name, database = new_name(), connections[self.using].settings_dict["NAME"]
        try:
            with mark_running(name, using=self.using):
                fixture = Fixture.make(self.model, using=self.using, name=name)
                connection = WorkerConnection(alias=self.using, database=database, session=name)
                try:
                    yield fixture, connection, environment(self.using)
                finally:
                    if self.keep:
                        notes.append(f"Kept: the accounts of user {name}. simulate --clean removes them.")
                    else:
                        _purge(fixture, notes)
        except (OperationalError, InterfaceError) as error:
            reason = str(error).strip().partition("\n")[0]
            lost = f"The connection to database {self.using!r} was lost: {reason}."
            raise SimulationError(" ".join([lost, *notes])) from error
        if settings.DEBUG:
            notes.append("DEBUG is on: Django keeps a log of the statements, which slows every strategy down.")


def run_load(
    config: RunConfig,
    *,
    plan: LoadPlan,
    workload: Workload,
    sweep: Sweep | None = None,
    interrupt: StopSignal,
    terminal: TextIO | None,
    on_progress: Callable[[tuple[Lane, ...]], None] | None = None,
) -> LoadReport:
    """Measure the strategies under a load, or at each size of a sweep; progress goes to the terminal, if there is one.

    ``on_progress`` is called with how far each strategy is, several times a second, and again when all are done.
    Raises `SimulationError` where this database or this machine cannot do it, ``ValueError`` as `sizes_of` does. An
    interrupt ends the run early; the report then has the rows that were measured, and says so.
    """
    sizes = sizes_of(sweep, plan=plan, workload=workload)
    names, notes = config.names, list[str]()
    workers = max(plan.workers for _, plan, _ in sizes)
    with config.fixture(notes, workers=workers) as (fixture, worker, ran_on):
        trials = list(_trials(config, sizes, fixture=fixture, sweep=sweep))
        # A worker that thinks completes nothing either.
        pool = WorkerPool(worker, size=workers, interrupt=interrupt, stuck_after=STUCK_AFTER + plan.think_time)
        watch = LaneWatch(trials=trials, completed=lambda: pool.completed, report=on_progress) if on_progress else None
        rounds = sum(trial.plan.rounds for trial in trials)
        with show_progress(terminal, total=rounds, completed=lambda: pool.completed) as progress, pool:
            measured = list(run_trials(trials, pool=pool, progress=watch or progress))
            if watch:
                watch.end()
    # They come in the order in which they ran, which differs from size to size.
    rows = tuple(sorted(measured, key=lambda row: (row.size or 0, names.index(row.strategy))))
    _, largest_plan, largest_workload = sizes[-1]
    of_load = advice_on_sweep(sweep, rows) if sweep else advice_on_load(rows)
    return LoadReport(
        environment=ran_on,
        plan=largest_plan,
        load=largest_workload.describe(),
        sweep=sweep,
        planned=names,
        rows=rows,
        advice=_advice_on_pairs(rows) if config.mixed else of_load,
        interrupted=interrupt.name,
        notes=tuple(notes),
    )


def _trials(
    config: RunConfig, sizes: Sequence[LoadSize], *, fixture: Fixture, sweep: Sweep | None
) -> Iterator[AccountTrial]:
    contenders = config.contenders
    for number, (size, plan, workload) in enumerate(sizes):
        # Each size begins with another strategy, so that the place in the order does not matter.
        for strategies in rotate(contenders, number % len(contenders)):
            trial = AccountTrial(
                label=joint_name(strategies),
                plan=plan,
                size=size,
                strategies=strategies,
                fixture=fixture,
                workload=workload,
            )
            if sweep and size:
                trial.label += f", {sweep.describe(size)}"
            yield trial


def sizes_of(sweep: Sweep | None, *, plan: LoadPlan, workload: Workload) -> list[LoadSize]:
    """Return the load at each size; without a sweep that is one. Raises ``ValueError`` for an impossible size."""
    if sweep is None:
        return [(None, plan, workload)]
    if sweep.axis == "workers":
        return [(size, replace(plan, workers=size), workload) for size in sweep.values]
    return [(size, plan, replace(workload, accounts=size)) for size in sweep.values]


def _advice_on_pairs(rows: Sequence[LoadRow]) -> tuple[str, ...]:
    """Return sentences about the pairs that lose updates and those that may be used; none without measurements."""
    wrong = [row.strategy for row in rows if row.wrong]
    right = [row.strategy for row in rows if row.status == "correct" and row.safe]
    lucky = [row.strategy for row in rows if row.status == "correct" and not row.safe]
    parts = dict.fromkeys(part for name in wrong for part in name.split("+"))
    alone = [name for name in parts if STRATEGIES[name].needs_all_writers]
    sentences = (
        (wrong, "Never let these write the same account, they overwrite each other's changes: {}."),
        (alone, "{} protects only against writers that use it too: use it for all writers of an account, or none."),
        (lucky, "These were correct in this run, but nothing guarantees it: {}."),
        (right, "These may write the same account: {}."),
    )
    return tuple(sentence.format(listed(names)) for names, sentence in sentences if names)


def _purge(fixture: Fixture, notes: list[str]) -> None:
    try:
        # The block may have ended because this process's connection did.
        connections[fixture.using].close_if_unusable_or_obsolete()
        # A worker that had to be killed may hold locks until its server process has noticed.
        end_sessions(fixture.using, [fixture.name])
        fixture.purge()
    except (DatabaseError, PurgeError) as error:
        notes.append(f"The accounts of user {fixture.name} are still there: {error}")
