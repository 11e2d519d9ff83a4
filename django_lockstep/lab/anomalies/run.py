"""Explores the anomalies on this server, each in every interleaving."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Any, Literal

from django.db import DEFAULT_DB_ALIAS, connections

from django_lockstep.lab.anomalies.access_patterns import LEVELS, STRATEGIES, AccessPattern
from django_lockstep.lab.anomalies.definitions import ANOMALIES, Anomaly, Observation, RolledBack
from django_lockstep.lab.anomalies.errors import AnomaliesError
from django_lockstep.lab.anomalies.published import SOURCES, published
from django_lockstep.lab.anomalies.results import AnomalyCell, AnomalyReport, Heading, Possibility, TableKind
from django_lockstep.lab.anomalies.scratch_table import START, scratch_table
from django_lockstep.lab.explorer import Exploration, Scenario, explore, replay

__all__ = ["AnomalyCase", "find_anomalies", "scenario", "select_cases"]

_CONFLICTS = frozenset({"40001", "40P01", "StaleVersionError"})
"""Errors that prevent an anomaly; any other error makes the cell incomplete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyCase:
    """One cell to be filled: an anomaly at a level, or with a strategy."""

    kind: TableKind
    """Which table."""
    column: str
    """The level or strategy."""
    anomaly: Anomaly
    """The row."""

    @property
    def published(self) -> Possibility | None:
        """The published result; None for a strategy, of which there is none."""
        return published(self.anomaly.name, self.column) if self.kind == "level" else None

    def pattern(self, using: str) -> AccessPattern:
        """Return the access pattern of the column."""
        return (
            AccessPattern(using=using, level=self.column)
            if self.kind == "level"
            else STRATEGIES[self.column](using=using)
        )


def select_cases(
    anomalies: Collection[str] = (),
    *,
    levels: Collection[str] = LEVELS,
    strategies: Collection[str] = tuple(STRATEGIES),
) -> tuple[AnomalyCase, ...]:
    """Return the cases of both tables; no anomaly means all. Raises ``ValueError`` for unknown names."""
    _require_known("anomaly", anomalies, ANOMALIES)
    _require_known("level", levels, LEVELS)
    _require_known("strategy", strategies, STRATEGIES)
    columns: list[tuple[TableKind, str]] = [("level", name) for name in LEVELS if name in levels]
    columns += [("strategy", name) for name in STRATEGIES if name in strategies]
    return tuple(
        AnomalyCase(kind=kind, column=column, anomaly=anomaly)
        for anomaly in ANOMALIES.values()
        if not anomalies or anomaly.name in anomalies
        for kind, column in columns
    )


def _require_known(what: str, names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{what} must be one of {', '.join(known)}, not {name!r}")


def find_anomalies(
    asked: Collection[AnomalyCase],
    *,
    using: str = DEFAULT_DB_ALIAS,
    max_schedules: int | None = None,
    timeout: float | None = None,
    show: bool = False,
    watch: Callable[[AnomalyCase], None] = lambda case: None,
) -> AnomalyReport:
    """Explore the cases on a scratch table, and return the report.

    ``max_schedules`` and ``timeout``, in seconds, limit each exploration, which then is incomplete. ``show`` keeps a
    run of prevented anomalies too, and of each run which rows are seen and locked after its moves. ``watch`` is called
    before each case. Raises `AnomaliesError` if the table cannot be created, and `ExplorerError` as `explore` does.
    """
    connection = connections[using]
    if connection.vendor != "postgresql":
        raise AnomaliesError(f"Database {using!r} is {connection.vendor}; the anomalies need PostgreSQL")
    begun = time.monotonic()
    cells = []
    with scratch_table(using) as vacuum:
        for case in asked:
            watch(case)
            # Dead rows of the last case would change where rows lie, and so which pages SERIALIZABLE locks.
            vacuum()
            cells.append(_explore_case(case, using=using, show=show, max_schedules=max_schedules, timeout=timeout))
    return AnomalyReport(
        server=_server(using),
        database=using,
        anomalies=tuple(_anomaly_headings(asked)),
        levels=tuple(Heading(name=name, text="") for name in LEVELS if ("level", name) in _columns(asked)),
        strategies=tuple(
            Heading(name=name, text=pattern.text)
            for name, pattern in STRATEGIES.items()
            if ("strategy", name) in _columns(asked)
        ),
        cells=tuple(cells),
        sources=SOURCES,
        seconds=time.monotonic() - begun,
    )


def _columns(asked: Collection[AnomalyCase]) -> set[tuple[TableKind, str]]:
    return {(case.kind, case.column) for case in asked}


def _anomaly_headings(asked: Collection[AnomalyCase]) -> Iterator[Heading]:
    for anomaly in dict.fromkeys(case.anomaly for case in asked):
        yield Heading(name=anomaly.name, title=anomaly.title, text=anomaly.text)


def _server(using: str) -> str:
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version')")
        return f"PostgreSQL {cursor.fetchone()[0].split()[0]}"


def scenario(case: AnomalyCase, *, using: str = DEFAULT_DB_ALIAS) -> Scenario:
    """Return the case as a scenario, which needs the table of `scratch_table`."""
    pattern, anomaly = case.pattern(using), case.anomaly

    def set_up() -> Observation:
        # One by one: the explorer does not know which tables a bulk_create() writes, and would copy all of them.
        for pk, value in START.items():
            pattern.items.create(pk=pk, value=value)
        return Observation()

    def actor(name: str, program: Callable[[AccessPattern], Any]) -> Callable[[Observation], None]:
        def act(observed: Observation) -> None:
            try:
                observed.seen[name] = pattern.run(program)
            except RolledBack:
                return

        return act

    def holds(observed: Observation) -> bool:
        if anomaly.shown_by(_with_end(observed, pattern)):
            raise AssertionError(f"{anomaly.name}, {anomaly.title}: {anomaly.text}")
        return True

    return Scenario(
        set_up=set_up,
        actors={name: actor(name, program) for name, program in zip(ascii_uppercase, anomaly.programs, strict=False)},
        invariant=holds,
        observe=lambda observed: _describe(_with_end(observed, pattern)),
    )


def _with_end(observed: Observation, pattern: AccessPattern) -> Observation:
    """Return the observation with the values at its end."""
    observed.end = dict(pattern.items.order_by("pk").values_list("pk", "value"))
    return observed


def _describe(observed: Observation) -> str:
    names = {1: "x", 2: "y"}
    end = ", ".join(f"{names.get(pk, f'row {pk}')} = {value}" for pk, value in observed.end.items())
    saw = [f"{name} saw {seen}" for name, seen in sorted(observed.seen.items()) if seen is not None]
    return "; ".join([end, *saw])


def _explore_case(case: AnomalyCase, *, using: str, show: bool, **limits: Any) -> AnomalyCell:
    race = scenario(case, using=using)
    # The rows are not needed: the scratch table was created for this.
    options: dict[str, Any] = {"database": using, "database_is_mine": True}
    found = explore(race, reduction=_reduction(case), **limits, **options)
    verdict, reason = _verdict(found)
    cell = AnomalyCell(
        anomaly=case.anomaly.name,
        kind=case.kind,
        column=case.column,
        verdict=verdict,
        prevented_by=_prevented_by(found) if verdict == "prevented" else (),
        schedule=found.failure.schedule if found.failure else None,
        schedules=found.schedules,
        reason=reason,
        seconds=found.seconds,
        published=case.published,
        run=found.failure,
    )
    if not (show and found.outcomes):
        return cell
    schedule = found.failure.schedule if found.failure else _telling_schedule(found, case)
    return replace(cell, run=replay(race, schedule, rows=True, **options))


def _reduction(case: AnomalyCase) -> Literal["none", "dpor"]:
    """Return "none" for two actors at a level, since the reduction assumes what they test.

    It assumes that no transaction reads uncommitted changes. With three actors, every order would take too long.
    """
    return "none" if case.kind == "level" and len(case.anomaly.programs) == 2 else "dpor"


def _verdict(found: Exploration) -> tuple[Possibility, str]:
    """Return the verdict and the reason; an anomaly is not prevented if transactions failed for other reasons."""
    others = _raised(found) - _CONFLICTS
    # A transaction that failed for a reason of its own was never exposed to the anomaly.
    if others:
        return "incomplete", f"Transactions failed with {', '.join(sorted(others))}"
    if found.verdict == "holds":
        return "prevented", found.reason
    if found.failure is not None and found.verdict == "broken":
        return "possible", f"Schedule {found.failure.schedule} shows it"
    return "incomplete", found.reason


def _raised(found: Exploration) -> set[str]:
    return {error for outcome in found.outcomes for error in outcome.errors.values()}


def _prevented_by(found: Exploration) -> tuple[str, ...]:
    """Return what prevented the anomaly."""
    waits = ("waits",) if found.waits else ()
    return (*waits, *found.errors, *sorted(_raised(found) - found.errors.keys())) or ("snapshots",)


def _telling_schedule(found: Exploration, case: AnomalyCase) -> str:
    """Return a schedule in which an actor got an error; if there is none, one in which all begin before one goes on."""
    refused = [outcome.schedule for outcome in found.outcomes if outcome.errors]
    # Without errors the simplest schedules are serial, and show nothing of how the transactions meet.
    return max(refused, key=len, default=ascii_uppercase[: len(case.anomaly.programs)])
