"""Runs as specs for isolationtester, the tool that PostgreSQL tests its own isolation with.

The format is described in ``src/test/isolation/README`` of PostgreSQL's sources; it is that of PostgreSQL 14 and later.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.db import DEFAULT_DB_ALIAS, connections

from django_lockstep.lab.explorer.effects.catalog import Catalog, quote_name
from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.effects.sql import parse_cached
from django_lockstep.lab.explorer.errors import NotWritable
from django_lockstep.lab.explorer.options import STEP_TIMEOUT, Options
from django_lockstep.lab.explorer.results import Run
from django_lockstep.lab.explorer.retries import follow, play
from django_lockstep.lab.explorer.search.branches import Schedule
from django_lockstep.lab.explorer.search.schedules import Follow, parse_schedule
from django_lockstep.lab.explorer.session import ExplorationSession, exploration_session
from django_lockstep.lab.explorer.spec.permutations import SCHEMA, Permutation, block
from django_lockstep.lab.scenario import Scenario


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
    schedule: str | Schedule = "",
    *,
    step_timeout: float = STEP_TIMEOUT,
    database: str = DEFAULT_DB_ALIAS,
    database_is_mine: bool = False,
) -> Spec:
    """Run one schedule, such as ``AABBAB``, and write it as a spec for PostgreSQL's isolationtester.

    The spec is self-contained: it creates the tables that the run touched in its own schema, with their rows as
    ``set_up`` left them, and drops it at the end. Steps contain the SQL that was sent, with literals. A spec with a
    deadlock must be run by a superuser, because it sets ``deadlock_timeout``. ``schedule`` may also be a `Schedule`.
    The other options are those of `replay`.

    Raises `NotWritable`, naming the step, for what is not sent as a statement (server-side cursors, COPY), for other
    databases, views and partitions, and for columns of types that are not built in; otherwise as `replay` does.
    """
    if isinstance(schedule, str):
        schedule = Follow(parse_schedule(schedule, actors=len(scenario.actors)))
    own = connections[database].copy()
    options = Options(database=database, database_is_mine=database_is_mine, step_timeout=step_timeout)
    try:
        own.connect()
        return _Recorder(scenario, own.connection).record(schedule, options)
    finally:
        own.close()


class _Recorder:
    """Runs a schedule twice: first to learn which tables it touches, then to keep their rows before it starts."""

    def __init__(self, scenario: Scenario, connection: Any) -> None:
        self._scenario = scenario
        self._connection = connection
        self._dump = Dump(connection.cursor())
        self._tables: set[str] = set()
        self._words: set[str] = set()

    def record(self, schedule: Schedule, options: Options) -> Spec:
        with exploration_session(replace(self._scenario, set_up=self._set_up), options) as session:
            return session.run_until_stable(lambda: self._record(session, schedule))

    def _record(self, session: ExplorationSession, schedule: Schedule) -> Spec:
        catalog = session.server(session.options.database).catalog
        session.marks_keys = False
        session.warm_up()
        _, trace = play(session, schedule)
        operations = [step.operation for step in trace.steps]
        for operation in operations:
            if session.server(operation.alias).catalog is not catalog:
                raise NotWritable(f"{operation.sql!r} goes to database {operation.alias!r}; a spec has one database")
        self._tables |= self._touched_tables(catalog, operations)
        self._words.update(word for operation in operations for word in _words(operation))
        session.keep_values()
        end, trace = follow(session, trace.actors)
        setup = ";\n".join(self._dump.statements())
        permutation = Permutation(trace, session.names, connection=self._connection)
        shown = self._final_queries(catalog, [step.operation for step in trace.steps])
        run = session.judge(end, trace)
        head = [*_head(run), *([block("setup", setup)] if setup else []), _TEARDOWN]
        text = "\n\n".join([*head, *permutation.parts(shown)]) + "\n"
        return Spec(text=text, run=run, steps=tuple(permutation.names), ends=shown)

    def _set_up(self) -> Any:
        fixture = self._scenario.set_up()
        self._dump.take(self._tables, words=self._words)
        return fixture

    def _touched_tables(self, catalog: Catalog, operations: Iterable[Operation]) -> set[str]:
        """Return the tables of the statements, and those that their constraints and triggers lead to."""
        reached: set[str] = set()
        waiting = [name for operation in operations for name in _tables_of(operation, catalog)]
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


# Tables as SQL that recreates them: columns, rows, constraints, indexes, triggers.

_COLUMNS = """
SELECT quote_ident(attname), format_type(atttypid, atttypmod), attnotnull,
       attidentity <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid), '') LIKE 'nextval(%%', attgenerated,
       pg_get_expr(d.adbin, d.adrelid),
       (SELECT quote_ident(collname) FROM pg_collation c WHERE c.oid = attcollation AND attcollation <> typcollation),
       typnamespace = 'pg_catalog'::regnamespace
FROM pg_attribute JOIN pg_type t ON t.oid = atttypid
     LEFT JOIN pg_attrdef d ON d.adrelid = attrelid AND d.adnum = attnum
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_CONSTRAINTS = """
SELECT quote_ident(conname), pg_get_constraintdef(oid, true), contype = 'f' FROM pg_constraint
WHERE conrelid = %s::regclass AND contype IN ('p', 'u', 'x', 'c', 'f') ORDER BY contype <> 'p', conname
"""
_INDEXES = """
SELECT pg_get_indexdef(indexrelid, 0, true) FROM pg_index i WHERE indrelid = %s::regclass AND NOT EXISTS (
    SELECT FROM pg_constraint c WHERE c.conindid = i.indexrelid AND c.conrelid = i.indrelid AND contype <> 'f')
ORDER BY indexrelid
"""
_TRIGGERS = """
SELECT replace(pg_get_functiondef(p.oid), format('FUNCTION %%I.%%I(', nspname, proname),
               format('FUNCTION %%I(', proname)),
       pg_get_triggerdef(t.oid, true), prosrc
FROM pg_trigger t JOIN pg_proc p ON p.oid = tgfoid JOIN pg_namespace n ON n.oid = pronamespace
WHERE tgrelid = %s::regclass AND NOT tgisinternal ORDER BY tgname
"""
_SEQUENCES = """
SELECT quote_ident(a.attname), s.oid::regclass::text
FROM pg_class s JOIN pg_depend d ON d.objid = s.oid AND d.deptype IN ('a', 'i')
JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
WHERE s.relkind = 'S' AND d.refobjid = %s::regclass
"""
_FREE_SEQUENCES = """
SELECT relname, quote_ident(relname), seqincrement FROM pg_class c JOIN pg_sequence ON seqrelid = c.oid
WHERE pg_table_is_visible(c.oid)
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype IN ('a', 'i'))
ORDER BY relname
"""
_NEXT = "CASE WHEN is_called THEN last_value + seqincrement ELSE last_value END"


_LOWEST = -(2**63)


class _Column(NamedTuple):
    name: str
    type: str
    required: bool
    counted: bool
    """Whether a sequence numbers it."""
    generated: str
    default: str | None
    collation: str | None
    built_in: bool


class Dump:
    """Reads tables through one cursor of the driver; `take` keeps their current rows."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self._rows: dict[str, list[str]] = {}
        self._free: list[str] = []

    def take(self, tables: Iterable[str], *, words: Collection[str] = ()) -> None:
        """Keep the tables' current rows and sequences, and those sequences of no table that ``words`` names."""
        self._free = [
            f"CREATE SEQUENCE {name} INCREMENT BY {step} START WITH {self._next(name)} MINVALUE {_LOWEST}"
            for bare, name, step in self._query(_FREE_SEQUENCES)
            if bare in words
        ]
        self._rows = {name: [*self._inserts(name), *self._sequences(name)] for name in sorted(tables)}

    def trigger_sources(self, table: str) -> str:
        """Return the sources of the table's trigger functions, which may name other tables."""
        return "\n".join(source for _, _, source in self._query(_TRIGGERS, quote_name(table)))

    def statements(self) -> Iterator[str]:
        """Yield the SQL that recreates the tables as they were taken, foreign keys and triggers after the rows.

        Raises `NotWritable` for columns of types that not every PostgreSQL has.
        """
        yield from self._free
        # All tables, then all rows, and foreign keys after those: tables may refer to each other in circles.
        for name in self._rows:
            yield self._table(name)
        for rows in self._rows.values():
            yield from rows
        for name in self._rows:
            yield from (definition for (definition,) in self._query(_INDEXES, quote_name(name)))
        for name in self._rows:
            for constraint, definition, foreign in self._query(_CONSTRAINTS, quote_name(name)):
                if foreign:
                    yield f"ALTER TABLE {quote_name(name)} ADD CONSTRAINT {constraint} {definition}"
            # Triggers last, so that they do not fire for the rows inserted above.
            for function, trigger, _ in self._query(_TRIGGERS, quote_name(name)):
                yield function.strip()
                yield trigger

    def _query(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._cursor.execute(sql, params or None).fetchall()
        return rows

    def _columns(self, name: str) -> list[_Column]:
        return [_Column(*column) for column in self._query(_COLUMNS, quote_name(name))]

    def _table(self, name: str) -> str:
        lines = [_definition(name, column) for column in self._columns(name)]
        lines += [
            f"CONSTRAINT {constraint} {definition}"
            for constraint, definition, foreign in self._query(_CONSTRAINTS, quote_name(name))
            if not foreign
        ]
        body = ",\n    ".join(lines)
        return f"CREATE TABLE {quote_name(name)} (\n    {body}\n)"

    def _inserts(self, name: str) -> Iterator[str]:
        columns = [column.name for column in self._columns(name) if not column.generated]
        values = ", ".join(f"quote_nullable({column}::text)" for column in columns)
        # In physical order, which is the order in which a scan finds and locks them.
        rows = self._query(f"SELECT array_to_string(ARRAY[{values}], ', ') FROM {quote_name(name)} ORDER BY ctid")
        if rows:
            listed = ",\n    ".join(f"({row})" for (row,) in rows)
            yield f"INSERT INTO {quote_name(name)} ({', '.join(columns)}) OVERRIDING SYSTEM VALUE VALUES\n    {listed}"

    def _sequences(self, name: str) -> Iterator[str]:
        for column, sequence in self._query(_SEQUENCES, quote_name(name)):
            yield f"ALTER TABLE {quote_name(name)} ALTER {column} RESTART WITH {self._next(sequence)}"

    def _next(self, sequence: str) -> int:
        """Return the next value of the sequence (a quoted name)."""
        query = f"SELECT {_NEXT} FROM {sequence}, pg_sequence WHERE seqrelid = %s::regclass"
        ((following,),) = self._query(query, sequence)
        return int(following)


def _definition(table: str, column: _Column) -> str:
    if not column.built_in:
        raise NotWritable(f"Column {column.name} of table {table} has type {column.type}, which is not a built-in type")
    parts = [column.name, column.type]
    if column.collation:
        parts.append(f"COLLATE {column.collation}")
    if column.generated:
        parts.append(f"GENERATED ALWAYS AS ({column.default}) {'STORED' if column.generated == 's' else 'VIRTUAL'}")
    elif column.counted:
        parts.append("GENERATED BY DEFAULT AS IDENTITY")
    elif column.default is not None:
        parts.append(f"DEFAULT {column.default}")
    if column.required and not column.counted:
        parts.append("NOT NULL")
    return " ".join(parts)
