"""Plays the anomalies on the server at hand, each through every interleaving."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Any, Literal

from django.db import DEFAULT_DB_ALIAS, connections

from django_lockstep.lab.anomalies.definitions import ANOMALIES, Anomaly, History, RolledBack
from django_lockstep.lab.anomalies.errors import AnomaliesError
from django_lockstep.lab.anomalies.ground import START, ground
from django_lockstep.lab.anomalies.published import SOURCES, published
from django_lockstep.lab.anomalies.results import AnomalyReport, Cell, Kind, Named, Verdict
from django_lockstep.lab.anomalies.ways import LEVELS, STRATEGIES, Way
from django_lockstep.lab.explorer import Exploration, Scenario, explore, replay

__all__ = ["Question", "find_anomalies", "questions", "scenario"]

_CONFLICTS = frozenset({"40001", "40P01", "StaleVersionError"})
"""Errors that prevent an anomaly; any other one is a failure to play it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One cell to be found out."""

    kind: Kind
    """Level or strategy."""
    column: str
    """Which of them."""
    anomaly: Anomaly
    """What may happen."""

    def way(self, using: str) -> Way:
        """Return how the transactions are written."""
        return Way(using=using, level=self.column) if self.kind == "level" else STRATEGIES[self.column](using=using)


def questions(
    anomalies: Collection[str] = (),
    *,
    levels: Collection[str] = LEVELS,
    strategies: Collection[str] = tuple(STRATEGIES),
) -> tuple[Question, ...]:
    """Return the cells of both tables; no anomaly means all. Raises ``ValueError`` for names that are not known."""
    _require_known("anomaly", anomalies, ANOMALIES)
    _require_known("level", levels, LEVELS)
    _require_known("strategy", strategies, STRATEGIES)
    columns: list[tuple[Kind, str]] = [("level", name) for name in LEVELS if name in levels]
    columns += [("strategy", name) for name in STRATEGIES if name in strategies]
    return tuple(
        Question(kind=kind, column=column, anomaly=anomaly)
        for anomaly in ANOMALIES.values()
        if not anomalies or anomaly.name in anomalies
        for kind, column in columns
    )


def _require_known(what: str, names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"There is no {what} {name!r}; there are {', '.join(known)}")


def find_anomalies(
    asked: Collection[Question],
    *,
    using: str = DEFAULT_DB_ALIAS,
    max_schedules: int | None = None,
    show: bool = False,
    watch: Callable[[Question], None] = lambda question: None,
) -> AnomalyReport:
    """Explore each question on a table of their own, and return what came of it.

    ``max_schedules`` bounds each exploration, which then is incomplete. ``show`` keeps a run also of what is prevented.
    ``watch`` is called before each question. Raises `AnomaliesError` where the table cannot be made, and
    `ExplorerError` as `explore` does.
    """
    connection = connections[using]
    if connection.vendor != "postgresql":
        raise AnomaliesError(f"Database {using!r} is {connection.vendor}; the anomalies are played on PostgreSQL")
    begun = time.monotonic()
    cells = []
    with ground(using) as tidy:
        for question in asked:
            watch(question)
            tidy()
            cells.append(_answer(question, using=using, max_schedules=max_schedules, show=show))
    return AnomalyReport(
        server=_server(using),
        database=using,
        anomalies=tuple(_named_anomalies(asked)),
        levels=tuple(Named(name=name, text="") for name in LEVELS if ("level", name) in _columns(asked)),
        strategies=tuple(
            Named(name=name, text=way.text) for name, way in STRATEGIES.items() if ("strategy", name) in _columns(asked)
        ),
        cells=tuple(cells),
        sources=SOURCES,
        seconds=time.monotonic() - begun,
    )


def _columns(asked: Collection[Question]) -> set[tuple[Kind, str]]:
    return {(question.kind, question.column) for question in asked}


def _named_anomalies(asked: Collection[Question]) -> Iterator[Named]:
    for anomaly in dict.fromkeys(question.anomaly for question in asked):
        yield Named(name=anomaly.name, title=anomaly.title, text=anomaly.text)


def _server(using: str) -> str:
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version')")
        return f"PostgreSQL {cursor.fetchone()[0].split()[0]}"


def scenario(question: Question, *, using: str = DEFAULT_DB_ALIAS) -> Scenario:
    """Return the race that answers the question; it needs the table of `ground`."""
    way, anomaly = question.way(using), question.anomaly

    def set_up() -> History:
        # One by one: of a bulk_create() the explorer cannot tell which tables it writes, and would copy all of them.
        for pk, value in START.items():
            way.items.create(pk=pk, value=value)
        return History()

    def actor(name: str, program: Callable[[Way], Any]) -> Callable[[History], None]:
        def act(history: History) -> None:
            try:
                history.seen[name] = way.run(program)
            except RolledBack:
                return

        return act

    def holds(history: History) -> bool:
        if anomaly.shown_by(_ended(history, way)):
            raise AssertionError(f"{anomaly.name}, {anomaly.title}: {anomaly.text}")
        return True

    return Scenario(
        set_up=set_up,
        actors={name: actor(name, program) for name, program in zip(ascii_uppercase, anomaly.programs, strict=False)},
        invariant=holds,
        observe=lambda history: _described(_ended(history, way)),
    )


def _ended(history: History, way: Way) -> History:
    """Return the history with the values at its end."""
    history.end = dict(way.items.order_by("pk").values_list("pk", "value"))
    return history


def _described(history: History) -> str:
    names = {1: "x", 2: "y"}
    end = ", ".join(f"{names.get(pk, f'row {pk}')} = {value}" for pk, value in history.end.items())
    saw = [f"{name} saw {seen}" for name, seen in sorted(history.seen.items()) if seen is not None]
    return "; ".join([end, *saw])


def _answer(question: Question, *, using: str, max_schedules: int | None, show: bool) -> Cell:
    race = scenario(question, using=using)
    # Nobody needs the rows: the one table that is raced on was made for it.
    mine: dict[str, Any] = {"database": using, "database_is_mine": True}
    found = explore(race, reduction=_reduction(question), max_schedules=max_schedules, **mine)
    verdict, reason = _verdict(found)
    cell = Cell(
        anomaly=question.anomaly.name,
        kind=question.kind,
        column=question.column,
        verdict=verdict,
        how=_how(found) if verdict == "prevented" else (),
        schedule=found.failure.schedule if found.failure else None,
        schedules=found.schedules,
        reason=reason,
        seconds=found.seconds,
        published=published(question.anomaly.name, question.column) if question.kind == "level" else None,
        run=found.failure,
    )
    if show and cell.run is None and found.outcomes:
        return replace(cell, run=replay(race, _telling(found), **mine))
    return cell


def _reduction(question: Question) -> Literal["none", "dpor"]:
    """Return "none" for two actors at a level, since the reduction takes for granted what they show.

    That is: nobody reads what is not committed. With three actors every order would take too long.
    """
    return "none" if question.kind == "level" and len(question.anomaly.programs) == 2 else "dpor"


def _verdict(found: Exploration) -> tuple[Verdict, str]:
    """Return the verdict and why; nothing counts as prevented because a transaction failed for another reason."""
    others = _raised(found) - _CONFLICTS
    if others:
        return "incomplete", f"Transactions failed with {', '.join(sorted(others))}"
    if found.verdict == "holds":
        return "prevented", found.reason
    if found.failure is not None and found.verdict == "broken":
        return "possible", f"Schedule {found.failure.schedule} shows it"
    return "incomplete", found.reason


def _raised(found: Exploration) -> set[str]:
    return {error for outcome in found.outcomes for error in outcome.errors.values()}


def _how(found: Exploration) -> tuple[str, ...]:
    """Return what kept the actors apart."""
    waits = ("waits",) if found.waits else ()
    return (*waits, *found.errors, *sorted(_raised(found) - found.errors.keys())) or ("snapshots",)


def _telling(found: Exploration) -> str:
    """Return a schedule in which somebody met an error, if there is one."""
    return max(found.outcomes, key=lambda outcome: (bool(outcome.errors), len(outcome.schedule))).schedule
