"""Simulations of the accounts' strategies, from the choice to the report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TextIO

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import DatabaseError, InterfaceError, OperationalError, connections, router

from accounts.binding import account_model
from accounts.engine import EngineName
from accounts.models import AbstractAccount
from accounts.races.ground import Ground, PurgeError
from accounts.races.load import LoadContender, described
from accounts.races.mix import Mix
from accounts.races.mixtures import Mixture, advice_on_mixtures, pairs_of
from accounts.races.remains import held, new_name
from accounts.races.stories import Story
from accounts.strategies import STRATEGIES, Strategy
from django_lockstep.lab.simulator.advice import advice_on_load, advice_on_story
from django_lockstep.lab.simulator.crew import PATIENCE, Crew
from django_lockstep.lab.simulator.database import (
    end_sessions,
    environment,
    require_connections,
    require_row_locks,
    require_tables,
)
from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.interrupt import Interrupt
from django_lockstep.lab.simulator.plan import Plan
from django_lockstep.lab.simulator.progress import progress
from django_lockstep.lab.simulator.race import Course, race, turned
from django_lockstep.lab.simulator.report import LoadReport, Row
from django_lockstep.lab.simulator.rounds import StoryReport, tell
from django_lockstep.lab.simulator.sweep import Point, Sweep, SweepReport, advice_on_sweep
from django_lockstep.lab.simulator.worker import Post

__all__ = ["NAMES", "Field", "Scene", "Stop", "account_model", "run_load", "run_story", "run_sweep", "stops_of"]


NAMES = tuple(STRATEGIES)
"""Every strategy there is, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Who races, and where."""

    strategies: tuple[str, ...]
    """The names, in the order in which they race."""
    model: type[AbstractAccount]
    """The accounts' model."""
    using: str
    """The database."""
    keep: bool = False
    """Whether the accounts stay when all is over."""
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
class Field:
    """The accounts of a load, and what is done with them. Raises ``ValueError`` for transfers on one account."""

    accounts: int
    """How many; 1 is the hot account that everybody wants."""
    mix: Mix
    """What is done how often."""
    seed: int
    """What the draws depend on."""

    def __post_init__(self) -> None:
        if self.mix.transfer and self.accounts == 1:
            raise ValueError(f"--mix {self.mix} has transfers, which need two accounts: add --accounts 2 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """One size at which all strategies are raced."""

    plan: Plan
    """How they are loaded."""
    field: Field
    """With what."""
    label: str = ""
    """What the progress says of it."""

    def course(self, strategy: Strategy | Mixture, *, ground: Ground) -> Course:
        """Return this strategy's way through the race."""
        accounts, mix, seed = self.field.accounts, self.field.mix, self.field.seed
        contender = LoadContender(strategy=strategy, ground=ground, accounts=accounts, mix=mix, seed=seed)
        engine = contender.engine if contender.engine != "plain" else ""
        label = ", ".join(filter(None, [strategy.name, engine, self.label]))
        return Course(contender=contender, plan=self.plan, label=label)


def run_load(scene: Scene, *, plan: Plan, field: Field, interrupt: Interrupt, terminal: TextIO | None) -> LoadReport:
    """Race the strategies under a load; progress goes to the terminal, if there is one.

    Raises `SimulationError` where this database or this machine cannot do it. An interrupt ends the run early; the
    report then has the rows that were measured, and says so.
    """
    _require(scene, workers=plan.workers)
    ran_on = environment(scene.using)
    notes: list[str] = []
    (measured,) = _raced(scene, [Stop(plan=plan, field=field)], notes, interrupt=interrupt, terminal=terminal)
    rows, counterparts = _first_of_each(measured)
    return LoadReport(
        environment=ran_on,
        plan=plan,
        load=described(accounts=field.accounts, mix=field.mix, seed=field.seed),
        planned=scene.names,
        rows=rows,
        advice=advice_on_mixtures(rows) if scene.mixed else advice_on_load(rows, counterparts),
        counterparts=counterparts,
        interrupted=interrupt.name,
        notes=tuple(notes),
    )


def _first_of_each(measured: Sequence[Row]) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Return the first row of each strategy, and the rows by other engines behind it."""
    first = {row.strategy: row for row in reversed(measured)}
    return tuple(row for row in measured if row is first[row.strategy]), tuple(
        row for row in measured if row is not first[row.strategy]
    )


def run_sweep(
    scene: Scene, *, sweep: Sweep, stops: Sequence[Stop], interrupt: Interrupt, terminal: TextIO | None
) -> SweepReport:
    """Race the strategies at all these sizes, which `stops_of` the sweep returned; as `run_load` in everything else."""
    largest = stops[-1]
    _require(scene, workers=largest.plan.workers)
    ran_on = environment(scene.using)
    notes: list[str] = []
    measured = _raced(scene, stops, notes, interrupt=interrupt, terminal=terminal)
    points = tuple(Point(value=value, rows=rows) for value, rows in zip(sweep.values, measured, strict=True) if rows)
    return SweepReport(
        environment=ran_on,
        sweep=sweep,
        plan=largest.plan,
        load=described(accounts=largest.field.accounts, mix=largest.field.mix, seed=largest.field.seed),
        planned=scene.strategies,
        points=points,
        advice=advice_on_sweep(sweep, points),
        interrupted=interrupt.name,
        notes=tuple(notes),
    )


def stops_of(sweep: Sweep, *, plan: Plan, field: Field) -> list[Stop]:
    """Return what is measured at each size. Raises ``ValueError`` where one of them makes no sense."""
    if sweep.axis == "workers":
        sizes = [(replace(plan, workers=value), field) for value in sweep.values]
    else:
        sizes = [(plan, replace(field, accounts=value)) for value in sweep.values]
    labels = map(sweep.named, sweep.values)
    return [Stop(plan=plan, field=field, label=label) for (plan, field), label in zip(sizes, labels, strict=True)]


def _raced(
    scene: Scene, stops: Sequence[Stop], notes: list[str], *, interrupt: Interrupt, terminal: TextIO | None
) -> list[tuple[Row, ...]]:
    """Race all strategies at each stop and return the rows by stop, in the order of the strategies."""
    workers = max(stop.plan.workers for stop in stops)
    patience = PATIENCE + max(stop.plan.think_time for stop in stops)
    with _ground(scene, notes) as (ground, post):
        # At each stop another strategy begins: where one stands in the order is not to matter.
        contenders = scene.contenders
        courses = [
            [stop.course(contender, ground=ground) for contender in turned(contenders, number % len(contenders))]
            for number, stop in enumerate(stops)
        ]
        flat = [course for group in courses for course in group]
        crew = Crew(post, workers=workers, interrupt=interrupt, patience=patience)
        laps = sum(course.plan.laps for course in flat)
        with progress(terminal, races=laps, beats=lambda: crew.beats) as watch, crew:
            rows = {id(course): row for course, row in race(flat, crew=crew, alias=scene.using, watch=watch)}
    return [_sorted(scene, [rows[id(course)] for course in group if id(course) in rows]) for group in courses]


def _sorted(scene: Scene, rows: Sequence[Row]) -> tuple[Row, ...]:
    names = scene.names
    return tuple(sorted(rows, key=lambda row: (names.index(row.strategy), row.engine != scene.engines[0])))


def run_story(scene: Scene, *, story: Story, rounds: int, interrupt: Interrupt, terminal: TextIO | None) -> StoryReport:
    """Have the strategies play a story so many times each; as `run_load` in everything else."""
    _require(scene, workers=len(story.changes))
    ran_on = environment(scene.using)
    notes: list[str] = []
    with _ground(scene, notes) as (ground, post):
        casts = [story.cast(strategy, ground=ground) for strategy in scene.bound]
        crew = Crew(post, workers=len(story.changes), interrupt=interrupt)
        with progress(terminal, races=len(casts), beats=lambda: crew.beats) as watch, crew:
            rows = tuple(tell(casts, rounds=rounds, crew=crew, alias=scene.using, watch=watch))
    return StoryReport(
        environment=ran_on,
        story=story.name,
        text=story.text,
        promise=story.promise,
        rounds=rounds,
        planned=scene.strategies,
        rows=rows,
        advice=advice_on_story(rows),
        interrupted=interrupt.name,
        notes=tuple(notes),
    )


def default_database(model: type[AbstractAccount]) -> str:
    """Return the database that the model's writes go to."""
    return router.db_for_write(model)


def _require(scene: Scene, *, workers: int) -> None:
    require_row_locks(scene.using)
    require_connections(scene.using, workers)
    models = (scene.model, scene.model.entry_model(), get_user_model())
    require_tables(scene.using, [model._meta.app_label for model in models])


@contextlib.contextmanager
def _ground(scene: Scene, notes: list[str]) -> Iterator[tuple[Ground, Post]]:
    """Provide the ground, and clean up whatever happens in the block; what a reader should know goes to the notes."""
    name, database = new_name(), connections[scene.using].settings_dict["NAME"]
    with _losses_told(scene.using, notes), held(name, using=scene.using):
        ground = Ground.make(scene.model, using=scene.using, name=name)
        try:
            yield ground, Post(alias=scene.using, database=database, session=name)
        finally:
            if scene.keep:
                notes.append(f"Kept: the accounts of user {name}. simulate --clean removes them.")
            else:
                _purge(ground, notes)
    if settings.DEBUG:
        notes.append("DEBUG is on: Django keeps a log of the statements, which slows every strategy down.")


@contextlib.contextmanager
def _losses_told(using: str, notes: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        reason = str(error).strip().partition("\n")[0]
        told = f"The connection to database {using!r} was lost: {reason}"
        raise SimulationError(" ".join([f"{told}.", *notes])) from error


def _purge(ground: Ground, notes: list[str]) -> None:
    name = ground.user.get_username()
    try:
        # The block may have ended because this process's connection did.
        connections[ground.using].close_if_unusable_or_obsolete()
        # A worker that had to be killed may hold locks until its server process has noticed.
        end_sessions(ground.using, [name])
        ground.purge()
    except (DatabaseError, PurgeError) as error:
        notes.append(f"The accounts of user {name} are still there: {error}")
