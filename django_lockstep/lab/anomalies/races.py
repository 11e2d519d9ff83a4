"""A race for each anomaly at each isolation level, which must come out as published."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import ascii_uppercase
from types import MappingProxyType
from typing import Any

from django.db import connection, transaction
from psycopg import IsolationLevel

from django_lockstep.errors import sqlstate_of
from django_lockstep.lab.anomalies.definitions import (
    ANOMALIES,
    Anomaly,
    Program,
    RolledBack,
    items_at_the_end,
    make_items,
    make_table,
)
from django_lockstep.lab.races import Race
from django_lockstep.lab.scenario import Scenario

__all__ = ["LEVELS", "POSSIBLE", "RACES", "REFUSALS", "SOURCES", "race_name"]

LEVELS = ("read committed", "repeatable read", "serializable")
"""PostgreSQL's isolation levels, weakest first; it accepts READ UNCOMMITTED and gives READ COMMITTED."""

SOURCES = (
    "Martin Kleppmann, Hermitage, https://github.com/ept/hermitage",
    "PostgreSQL documentation, 13.2, https://www.postgresql.org/docs/current/transaction-iso.html",
)
"""Where the results are published."""

POSSIBLE: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "read committed": frozenset({"PMP", "P4", "G-single", "G2-item", "G2"}),
        "repeatable read": frozenset({"G2-item", "G2"}),
        "serializable": frozenset(),
    }
)
"""The anomalies that PostgreSQL allows by these sources; it prevents all others."""

REFUSALS = frozenset({"40001", "40P01"})
"""SQLSTATEs with which the server prevents an anomaly."""


def race_name(anomaly: str, level: str) -> str:
    """Return the name of the race, such as ``anomaly:G2-item:repeatable-read``."""
    return f"anomaly:{anomaly}:{level.replace(' ', '-')}"


def _race(anomaly: Anomaly, level: str) -> Race:
    return Race(
        name=race_name(anomaly.name, level),
        text=f"{anomaly.title}: {anomaly.text}",
        scenario=Scenario(
            set_up=make_items,
            actors={
                name: _transaction(program, level=level)
                for name, program in zip(ascii_uppercase, anomaly.programs, strict=False)
            },
            invariant=_not_shown(anomaly),
            observe=lambda _: items_at_the_end(),
            prepare=make_table,
        ),
        holds=anomaly.name not in POSSIBLE[level],
    )


def _transaction(program: Program, *, level: str) -> Callable[[None], Any]:
    def act(_: None) -> Any:
        connection.ensure_connection()
        # As OPTIONS["isolation_level"] does it: as part of BEGIN, not as one more statement to interleave.
        connection.connection.isolation_level = IsolationLevel[level.replace(" ", "_").upper()]
        try:
            with transaction.atomic():
                return program()
        except RolledBack:
            return None

    return act


def _not_shown(anomaly: Anomaly) -> Callable[[None, Mapping[str, Any], Mapping[str, BaseException]], None]:
    def check(_: None, results: Mapping[str, Any], errors: Mapping[str, BaseException]) -> None:
        # A transaction that failed for another reason was never exposed to the anomaly.
        others = {name: error for name, error in errors.items() if sqlstate_of(error) not in REFUSALS}
        if others:
            raise AssertionError(f"transactions failed with {others}")
        if anomaly.shown_by(results, items_at_the_end()):
            raise AssertionError(f"{anomaly.name}, {anomaly.title}: {anomaly.text}")

    return check


RACES: Mapping[str, Race] = MappingProxyType(
    {race.name: race for anomaly in ANOMALIES.values() for level in LEVELS for race in [_race(anomaly, level)]}
)
"""By name, in the order of the published tables."""
