"""Simulations of the accounts' strategies, from the choice to the report."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TextIO

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import DatabaseError, InterfaceError, OperationalError, connections, router

from accounts.binding import account_model
from accounts.engine import EngineName
from accounts.models import AbstractAccount
from accounts.races.fixture import Fixture, PurgeError
from accounts.races.leftovers import mark_running, new_name
from accounts.races.load import LoadContender, Workload
from accounts.races.mixtures import Mixture, advice_on_mixtures, pairs_of
from accounts.races.stories import Story
from accounts.strategies import STRATEGIES, Strategy
from django_lockstep.lab.simulator.advice import advice_on_load
from django_lockstep.lab.simulator.database import (
    end_sessions,
    environment,
    require_connections,
    require_row_locks,
    require_tables,
)
from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.interrupt import Interrupt
from django_lockstep.lab.simulator.lanes import Lane, LaneWatch
from django_lockstep.lab.simulator.load_plan import LoadPlan
from django_lockstep.lab.simulator.pool import STUCK_AFTER, WorkerPool
from django_lockstep.lab.simulator.progress import show_progress
from django_lockstep.lab.simulator.report import LoadReport, LoadRow
from django_lockstep.lab.simulator.stories import StoryReport, play
from django_lockstep.lab.simulator.sweep import SizeResult, Sweep, SweepReport, advice_on_sweep
from django_lockstep.lab.simulator.trials import Trial, rotate, run_trials
from django_lockstep.lab.simulator.worker_process import WorkerConfig

__all__ = [
    "NAMES",
    "RunConfig",
    "SweepPoint",
    "Workload",
    "account_model",
    "default_database",
    "run_load",
    "run_story",
    "run_sweep",
    "sweep_points",
]


NAMES = tuple(STRATEGIES)
"""Every strategy there is, by name."""


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
    engines: tuple[EngineName, ...] = ("plain",)
    """What runs them; those without a compiled counterpart run once."""
    mixed: bool = False
    """Whether all pairs of them race, each on accounts that the two share; by the first of the engines."""

    @property
    def bound(self) -> list[Strategy]:
        """The strategies for this model and database, by each engine."""
        chosen = [STRATEGIES[name].bound(model=self.model, using=self.using) for name in self.strategies]
        first, *others = self.engines
        return [
            strategy.bound(engine=engine)
            for strategy in chosen
            for engine in (first, *(other for other in others if strategy.has_counterpart))
        ]

    @property
    def contenders(self) -> Sequence[Strategy | Mixture]:
        """What races under a load."""
        return pairs_of(replace(self, engines=self.engines[:1]).bound) if self.mixed else self.bound

    @property
    def names(self) -> tuple[str, ...]:
        """What the rows of the report are called, each once."""
        return tuple(dict.fromkeys(contender.name for contender in self.contenders))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One size at which all strategies are measured."""

    plan: LoadPlan
    """How much load, for how long."""
    workload: Workload
    """What the load is."""
    label: str = ""
    """What the progress says of it."""

    def trial(self, strategy: Strategy | Mixture, *, fixture: Fixture) -> Trial:
        """Return this strategy's way through the race."""
        contender = LoadContender(strategy=strategy, fixture=fixture, workload=self.workload)
        engine = contender.engine if contender.engine != "plain" else ""
        label = ", ".join(filter(None, [strategy.name, engine, self.label]))
        return Trial(contender=contender, plan=self.plan, label=label)


def run_load(
    config: RunConfig,
    *,
    plan: LoadPlan,
    workload: Workload,
    interrupt: Interrupt,
    terminal: TextIO | None,
    on_progress: Callable[[tuple[Lane, ...]], None] | None = None,
) -> LoadReport:
    """Measure the strategies under a load; progress goes to the terminal, if there is one.

    ``on_progress`` is called with how far each strategy is, several times a second, and again when all are done.
    Raises `SimulationError` where this database or this machine cannot do it. An interrupt ends the run early; the
    report then has the rows that were measured, and says so.
    """
    points = [SweepPoint(plan=plan, workload=workload)]
    ran_on, (measured,), notes = _measure(
        config, points, interrupt=interrupt, terminal=terminal, on_progress=on_progress
    )
    first = {row.strategy: row for row in reversed(measured)}
    rows = tuple(row for row in measured if row is first[row.strategy])
    # The rows by another engine.
    counterparts = tuple(row for row in measured if row is not first[row.strategy])
    return LoadReport(
        environment=ran_on,
        plan=plan,
        load=workload.describe(),
        planned=config.names,
        rows=rows,
        advice=advice_on_mixtures(rows) if config.mixed else advice_on_load(rows, counterparts),
        counterparts=counterparts,
        interrupted=interrupt.name,
        notes=tuple(notes),
    )


def run_sweep(
    config: RunConfig, *, sweep: Sweep, points: Sequence[SweepPoint], interrupt: Interrupt, terminal: TextIO | None
) -> SweepReport:
    """Measure the strategies at the points that `sweep_points` returned; in everything else as `run_load`."""
    largest = points[-1]
    ran_on, measured, notes = _measure(config, points, interrupt=interrupt, terminal=terminal)
    results = tuple(
        SizeResult(value=value, rows=rows) for value, rows in zip(sweep.values, measured, strict=True) if rows
    )
    return SweepReport(
        environment=ran_on,
        sweep=sweep,
        plan=largest.plan,
        load=largest.workload.describe(),
        planned=config.strategies,
        points=results,
        advice=advice_on_sweep(sweep, results),
        interrupted=interrupt.name,
        notes=tuple(notes),
    )


def sweep_points(sweep: Sweep, *, plan: LoadPlan, workload: Workload) -> list[SweepPoint]:
    """Return what is measured at each size. Raises ``ValueError`` for a size that the workload does not allow."""
    if sweep.axis == "workers":
        sizes = [(replace(plan, workers=value), workload) for value in sweep.values]
    else:
        sizes = [(plan, replace(workload, accounts=value)) for value in sweep.values]
    labels = map(sweep.describe, sweep.values)
    return [
        SweepPoint(plan=plan, workload=workload, label=label)
        for (plan, workload), label in zip(sizes, labels, strict=True)
    ]


def _measure(
    config: RunConfig,
    points: Sequence[SweepPoint],
    *,
    interrupt: Interrupt,
    terminal: TextIO | None,
    on_progress: Callable[[tuple[Lane, ...]], None] | None = None,
) -> tuple[dict[str, Any], list[tuple[LoadRow, ...]], list[str]]:
    """Measure all strategies at each point; return where, the rows by point in the strategies' order, and notes."""
    workers = max(point.plan.workers for point in points)
    # A worker that thinks completes nothing either.
    stuck_after = STUCK_AFTER + max(point.plan.think_time for point in points)
    _require(config, workers=workers)
    ran_on, contenders, notes = environment(config.using), config.contenders, list[str]()
    with _fixture(config, notes) as (fixture, worker_config):
        # Each point begins with another strategy, so that the place in the order does not matter.
        trials = [
            [point.trial(contender, fixture=fixture) for contender in rotate(contenders, number % len(contenders))]
            for number, point in enumerate(points)
        ]
        flat = [trial for group in trials for trial in group]
        pool = WorkerPool(worker_config, size=workers, interrupt=interrupt, stuck_after=stuck_after)
        rounds = sum(trial.plan.rounds for trial in flat)
        watch = LaneWatch(trials=flat, completed=lambda: pool.completed, report=on_progress) if on_progress else None
        with show_progress(terminal, total=rounds, completed=lambda: pool.completed) as progress, pool:
            measured = run_trials(flat, pool=pool, alias=config.using, progress=watch or progress)
            rows = {id(trial): row for trial, row in measured}
            if watch:
                watch.end()
    return (
        ran_on,
        [_sorted(config, [rows[id(trial)] for trial in group if id(trial) in rows]) for group in trials],
        notes,
    )


def _sorted(config: RunConfig, rows: Sequence[LoadRow]) -> tuple[LoadRow, ...]:
    names = config.names
    # They come in the order in which they ran, which differs from size to size.
    return tuple(sorted(rows, key=lambda row: (names.index(row.strategy), row.engine != config.engines[0])))


def run_story(
    config: RunConfig, *, story: Story, runs: int, interrupt: Interrupt, terminal: TextIO | None
) -> StoryReport:
    """Run a story so many times with each strategy; in everything else as `run_load`."""
    _require(config, workers=len(story.changes))
    ran_on = environment(config.using)
    notes: list[str] = []
    with _fixture(config, notes) as (fixture, worker_config):
        trials = [story.trial(strategy, fixture=fixture) for strategy in config.bound]
        rows = play(trials, worker_config, runs=runs, interrupt=interrupt, terminal=terminal)
    return story.report(rows, ran_on, runs=runs, planned=config.strategies, interrupt=interrupt, notes=notes)


def default_database(model: type[AbstractAccount]) -> str:
    """Return the database that the model's writes go to."""
    return router.db_for_write(model)


def _require(config: RunConfig, *, workers: int) -> None:
    require_row_locks(config.using)
    require_connections(config.using, workers)
    models = (config.model, config.model.entry_model(), get_user_model())
    require_tables(config.using, [model._meta.app_label for model in models])


@contextlib.contextmanager
def _fixture(config: RunConfig, notes: list[str]) -> Iterator[tuple[Fixture, WorkerConfig]]:
    """Create the fixture, and remove it whatever happens in the block; what a reader should know goes to the notes."""
    name, database = new_name(), connections[config.using].settings_dict["NAME"]
    with _explain_lost_connection(config.using, notes), mark_running(name, using=config.using):
        fixture = Fixture.make(config.model, using=config.using, name=name)
        try:
            yield fixture, WorkerConfig(alias=config.using, database=database, session=name)
        finally:
            if config.keep:
                notes.append(f"Kept: the accounts of user {name}. simulate --clean removes them.")
            else:
                _purge(fixture, notes)
    if settings.DEBUG:
        notes.append("DEBUG is on: Django keeps a log of the statements, which slows every strategy down.")


@contextlib.contextmanager
def _explain_lost_connection(using: str, notes: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        reason = str(error).strip().partition("\n")[0]
        lost = f"The connection to database {using!r} was lost: {reason}"
        raise SimulationError(" ".join([f"{lost}.", *notes])) from error


def _purge(fixture: Fixture, notes: list[str]) -> None:
    name = fixture.user.get_username()
    try:
        # The block may have ended because this process's connection did.
        connections[fixture.using].close_if_unusable_or_obsolete()
        # A worker that had to be killed may hold locks until its server process has noticed.
        end_sessions(fixture.using, [name])
        fixture.purge()
    except (DatabaseError, PurgeError) as error:
        notes.append(f"The accounts of user {name} are still there: {error}")
