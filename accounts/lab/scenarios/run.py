"""Simulations of the accounts' strategies, from the choice to the report."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import DatabaseError, connections, router

from accounts.abstract import AbstractAccount, account_model
from accounts.lab.scenarios.ground import Ground, PurgeError
from accounts.lab.scenarios.load import LoadContender, described
from accounts.lab.scenarios.mix import Mix
from accounts.lab.scenarios.stories import Story
from accounts.lab.simulator.advice import advice_on_load, advice_on_story
from accounts.lab.simulator.crew import PATIENCE, Crew
from accounts.lab.simulator.database import end_sessions, environment, require_row_locks, require_tables
from accounts.lab.simulator.interrupt import Interrupt
from accounts.lab.simulator.plan import Plan
from accounts.lab.simulator.progress import progress
from accounts.lab.simulator.race import race
from accounts.lab.simulator.report import LoadReport
from accounts.lab.simulator.rounds import StoryReport, tell
from accounts.lab.simulator.worker import Post
from accounts.strategies import STRATEGIES, Strategy

__all__ = ["NAMES", "Field", "Scene", "account_model", "run_load", "run_story"]


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

    @property
    def bound(self) -> list[Strategy]:
        """The strategies for this model and database."""
        return [STRATEGIES[name].bound(model=self.model, using=self.using) for name in self.strategies]


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


def run_load(scene: Scene, *, plan: Plan, field: Field, interrupt: Interrupt, terminal: TextIO | None) -> LoadReport:
    """Race the strategies under a load; progress goes to the terminal, if there is one.

    Raises `SimulationError` where this database or this machine cannot do it. An interrupt ends the run early; the
    report then has the rows that were measured, and says so.
    """
    _require(scene)
    ran_on = environment(scene.using)
    notes: list[str] = []
    with _ground(scene, notes) as (ground, post):
        contenders = [
            LoadContender(strategy=strategy, ground=ground, accounts=field.accounts, mix=field.mix, seed=field.seed)
            for strategy in scene.bound
        ]
        crew = Crew(post, workers=plan.workers, interrupt=interrupt, patience=PATIENCE + plan.think_time)
        with progress(terminal, races=len(contenders), beats=lambda: crew.beats) as watch, crew:
            rows = tuple(race(contenders, plan=plan, crew=crew, alias=scene.using, watch=watch))
    return LoadReport(
        environment=ran_on,
        plan=plan,
        load=described(accounts=field.accounts, mix=field.mix, seed=field.seed),
        planned=scene.strategies,
        rows=rows,
        advice=advice_on_load(rows),
        interrupted=interrupt.name,
        notes=tuple(notes),
    )


def run_story(scene: Scene, *, story: Story, rounds: int, interrupt: Interrupt, terminal: TextIO | None) -> StoryReport:
    """Have the strategies play a story so many times each; as `run_load` in everything else."""
    _require(scene)
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


def _require(scene: Scene) -> None:
    require_row_locks(scene.using)
    models = (scene.model, scene.model.entry_model(), get_user_model())
    require_tables(scene.using, [model._meta.app_label for model in models])


@contextlib.contextmanager
def _ground(scene: Scene, notes: list[str]) -> Iterator[tuple[Ground, Post]]:
    """Provide the ground, and clean up whatever happens in the block; what a reader should know goes to the notes."""
    if settings.DEBUG:
        notes.append("DEBUG is on: Django keeps a log of the statements, which slows every strategy down.")
    session = f"simulate-{uuid.uuid4().hex[:8]}"
    database = connections[scene.using].settings_dict["NAME"]
    ground = Ground.make(scene.model, using=scene.using)
    try:
        yield ground, Post(alias=scene.using, database=database, session=session)
    finally:
        if scene.keep:
            notes.append(f"Kept: the accounts of user {ground.user.get_username()}.")
        else:
            try:
                # A worker that had to be killed may hold locks until its server process has noticed.
                end_sessions(scene.using, [session])
                ground.purge()
            except (DatabaseError, PurgeError) as error:
                notes.append(f"The accounts of user {ground.user.get_username()} are still there: {error}")
