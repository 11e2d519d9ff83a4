"""Runs as specs for isolationtester, the tool that PostgreSQL tests its own isolation with.

The format is described in ``src/test/isolation/README`` of PostgreSQL's sources; it is that of PostgreSQL 14 and later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

from django_lockstep.lab.explorer.effects.catalog import Catalog
from django_lockstep.lab.explorer.effects.layouts import quote_name
from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.effects.sql import parse_cached
from django_lockstep.lab.explorer.errors import NotWritable
from django_lockstep.lab.explorer.options import STEP_TIMEOUT, SessionOptions, Victim
from django_lockstep.lab.explorer.results import Run
from django_lockstep.lab.explorer.retries import follow, play_copy
from django_lockstep.lab.explorer.search.schedules import Follow, parse_schedule
from django_lockstep.lab.explorer.search.strategy import Chooser
from django_lockstep.lab.explorer.session import ExplorationSession, exploration_session
from django_lockstep.lab.explorer.spec.dumps import Dump
from django_lockstep.lab.explorer.spec.permutations import SCHEMA, Permutation, block
from django_lockstep.lab.scenario import Scenario

__all__ = ["SCHEMA", "Spec", "write_spec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One run, written for isolationtester."""

    text: str
    """The file: tables with their rows, sessions with their steps, and the permutation."""
    run: Run
    """What happened in the lab."""
    steps: tuple[str, ...]
    """Names of the run's steps in the spec, in the same order."""
    ends: Mapping[str, str]
    """SQL of the steps that show the written tables at the end, by name."""


def write_spec(
    scenario: Scenario,
    schedule: str | Chooser = "",
    *,
    victim: Victim = "last",
    step_timeout: float = STEP_TIMEOUT,
    database: str = DEFAULT_DB_ALIAS,
    database_is_mine: bool = False,
) -> Spec:
    """Run one schedule, such as ``AABBAB``, and write it as a spec for PostgreSQL's isolationtester.

    The spec is self-contained: it creates the tables that the run touched in its own schema, with their rows as
    ``set_up`` left them, and drops it at the end. Steps contain the SQL that was sent, with literals. A spec with a
    deadlock must be run by a superuser, because it sets ``deadlock_timeout``. ``schedule`` may also be a `Chooser`; the
    other options are those of `replay`.

    Raises `NotWritable`, naming the step, for what is not sent as a statement (server-side cursors, COPY), for other
    databases, views and partitions, and for columns of types that are not built in; otherwise as `replay` does.
    """
    if isinstance(schedule, str):
        schedule = Follow(parse_schedule(schedule, actors=len(scenario.actors)))
    own = connections[database].copy()
    try:
        own.connect()
        options = SessionOptions(
            database=database, database_is_mine=database_is_mine, victim=victim, step_timeout=step_timeout
        )
        return _Recorder(scenario, own.connection, options).spec(schedule)
    finally:
        own.close()


class _Recorder:
    """Runs a schedule twice: first to learn which tables it touches, then to keep their rows before it starts."""

    def __init__(self, scenario: Scenario, connection: Any, options: SessionOptions) -> None:
        self._scenario = scenario
        self._connection = connection
        self._options = options
        self._dump = Dump(connection.cursor())
        self._tables: set[str] = set()
        self._words: set[str] = set()

    def spec(self, chooser: Chooser) -> Spec:
        copied = Scenario(
            set_up=self._set_up,
            actors=self._scenario.actors,
            invariant=self._scenario.invariant,
            observe=self._scenario.observe,
        )
        with exploration_session(copied, self._options) as session:
            return session.run_until_stable(lambda: self._record(session, chooser))

    def _record(self, session: ExplorationSession, chooser: Chooser) -> Spec:
        session.warm_up()
        trace = play_copy(session, chooser)
        self._tables.update(self._touched_tables(session, [step.operation for step in trace.steps]))
        self._words.update(word for step in trace.steps for word in _words(step.operation))
        session.keep_values()
        end, trace = follow(session, trace.actors)
        setup = ";\n".join(self._dump.statements())
        permutation = Permutation(trace, session.names, connection=self._connection)
        shown = self._final_queries(
            session.server(self._options.database).catalog, [step.operation for step in trace.steps]
        )
        run = session.judge(end, trace)
        head = [*_head(run), *([block("setup", setup)] if setup else []), _TEARDOWN]
        text = "\n\n".join([*head, *permutation.parts(shown)]) + "\n"
        return Spec(text=text, run=run, steps=tuple(permutation.names), ends=shown)

    def _set_up(self) -> Any:
        fixture = self._scenario.set_up()
        self._dump.take(self._tables, words=self._words)
        return fixture

    def _touched_tables(self, session: ExplorationSession, operations: Iterable[Operation]) -> set[str]:
        """Return the tables of the statements, and those that their constraints and triggers lead to."""
        catalog = session.server(self._options.database).catalog
        reached: set[str] = set()
        waiting: list[str] = []
        for operation in operations:
            if session.server(operation.alias) is not session.server(self._options.database):
                raise NotWritable(f"{operation.sql!r} goes to database {operation.alias!r}; a spec has one database")
            waiting += _tables_of(operation, catalog)
        while waiting:
            table = catalog.get(waiting.pop())
            if table is None or table.name in reached:
                continue
            if table.special:
                raise NotWritable(f"{table.name} is not an ordinary table: it is a view, a partition, or has rules")
            reached.add(table.name)
            waiting += [*table.parents, *_named(self._dump.trigger_sources(table.name), catalog)]
        return reached

    def _final_queries(self, catalog: Catalog, operations: Iterable[Operation]) -> dict[str, str]:
        """Return the queries that show the written tables at the end, by step name."""
        written: set[str] = set()
        for operation in operations:
            statement = parse_cached(operation, catalog)
            unknown = statement.kind == "UNKNOWN"
            written |= _named(operation.sql, catalog) if unknown else {name for name, _ in statement.writes}
        shown = {}
        for number, name in enumerate(sorted(written & self._tables), start=1):
            table = catalog.get(name)
            order = quote_name(table.pk) if table is not None and table.pk else "1"
            shown[f"end{number}"] = f"SELECT * FROM {quote_name(name)} ORDER BY {order}"
        return shown


def _tables_of(operation: Operation, catalog: Catalog) -> set[str]:
    statement = parse_cached(operation, catalog)
    if statement.kind != "UNKNOWN":
        touched = statement.reads | statement.writes | {key for key, _ in statement.locks}
        return {name for name, _ in touched}
    named = _named(operation.sql, catalog)
    deletes = re.search(r"\b(DELETE|UPDATE|MERGE)\b", operation.sql, re.IGNORECASE)
    tables = [table for name in named if deletes and (table := catalog.get(name)) is not None]
    return named.union(*(table.children for table in tables))


def _words(operation: Operation) -> Iterator[str]:
    """Yield the words of the statement and of its parameters; one of them may be a sequence."""
    for text in (operation.sql, *operation.arguments):
        yield from re.findall(r"\w+", text)


def _named(sql: str, catalog: Catalog) -> set[str]:
    """Return the tables that the text seems to name."""
    words = set(re.findall(r'"([^"]+)"|\b(\w+)\b', sql))
    return {name for quoted, bare in words for name in (quoted, bare.lower()) if name and catalog.get(name) is not None}


_TEARDOWN = f"teardown\n{{\nDROP SCHEMA {SCHEMA} CASCADE;\n}}"


def _head(run: Run) -> Iterator[str]:
    waits = [f"{step.actor} waited for {', '.join(step.waited_for)}" for step in run.steps if step.waited_for]
    errors = [f"{name} raised {error}" for name, error in run.errors.items()]
    lines = [f"Schedule {run.schedule}", *waits, *errors]
    yield "\n".join(f"# {' '.join(line.split())}" for line in lines)
    yield f"setup\n{{\nCREATE SCHEMA {SCHEMA};\nSET search_path = {SCHEMA};\n}}"
