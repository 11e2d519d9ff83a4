"""Recordings made by hand, of a box office: events with seats and bookings."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock
from uuid import uuid4

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from django_lockstep.lab.explorer.effects.catalog import ForeignKey, UniqueIndex
from django_lockstep.lab.finder.derive.candidates import Candidate
from django_lockstep.lab.finder.derive.derivation import find_candidates
from django_lockstep.lab.finder.record.fingerprints import Fingerprints
from django_lockstep.lab.finder.record.recording import RecordedStatement, Recording, RowRead, Site, Table, Unit

PLAIN = Fingerprints(None).of
_KEY = UniqueIndex(columns=("id",))
_OF_EVENT = (ForeignKey(parent="event", columns=("event_id",)),)

EVENT = Table(name="event", model="box.Event", key=("id",), types={"id": "bigint", "places": "integer"}, unique=(_KEY,))
SEAT = Table(
    name="seat",
    model="box.Seat",
    key=("id",),
    types={
        "id": "bigint",
        "event_id": "bigint",
        "price": "numeric",
        "sold": "boolean",
        "guest": "character varying",
        "version": "integer",
        "changed_at": "timestamp with time zone",
    },
    unique=(_KEY,),
    foreign_keys=_OF_EVENT,
)
BOOKING = Table(
    name="booking",
    model="box.Booking",
    key=("id",),
    types={"id": "bigint", "event_id": "bigint", "code": "character varying", "place": "integer"},
    unique=(_KEY,),
    foreign_keys=_OF_EVENT,
)
SESSION = Table(
    name="django_session",
    key=("session_key",),
    types={"session_key": "character varying", "session_data": "text", "expire_date": "timestamp with time zone"},
)
TABLES = {table.name: table for table in (EVENT, SEAT, BOOKING, SESSION)}


ADVISORY = "SELECT pg_advisory_xact_lock(%s)"
LOCK_EVENT = 'SELECT "event"."id" FROM "event" WHERE "event"."id" = %s FOR UPDATE'
LOOK = 'SELECT 1 AS "a" FROM "booking" WHERE ("booking"."event_id" = %s AND "booking"."code" = %s) LIMIT 1'
INSERT = 'INSERT INTO "booking" ("event_id", "code", "place") VALUES (%s, %s, %s) RETURNING "booking"."id"'


def row(table: str, key: object, **values: object) -> RowRead:
    """Return a row as it is read, with its key."""
    columns = {name: PLAIN(value) for name, value in values.items()}
    return RowRead(table=table, key=PLAIN(key), values={TABLES[table].key[0]: PLAIN(key), **columns})


def sent(
    sql: str, *params: Any, read: Iterable[RowRead] = (), rows: int | None = None, in_: int | None = 0, **fields: Any
) -> RecordedStatement:
    """Return a statement; it returned as many rows as are given, and a write changed one."""
    read = tuple(read)
    counted = len(read) if sql.startswith("SELECT") else 1
    return RecordedStatement(
        **{
            "sql": sql,
            "params": tuple(map(PLAIN, params)),
            "types": tuple("now" if str(value) == "now" else type(value).__name__ for value in params),
            "transaction": in_,
            "read": read,
            "rows": counted if rows is None else rows,
            **fields,
        }
    )


def site(line: int, function: str = "sell") -> Site:
    return Site(path="box/office.py", line=line, function=function)


def unit(*statements: RecordedStatement, name: str = "POST sell/<int:pk>/", **fields: Any) -> Unit:
    """Return a request, unless another kind is given; its statements stand in lines 1, 2, ... of one function."""
    placed = [
        statement if statement.site else replace(statement, site=site(line))
        for line, statement in enumerate(statements, 1)
    ]
    inputs = frozenset(map(PLAIN, fields.pop("inputs", ())))
    defaults = {"test": "test_it", "kind": "request", "number": 0, **fields}
    return Unit(name=name, inputs=inputs, statements=tuple(placed), **defaults)


def derive(*units: Unit, **tables: Table) -> list[Candidate]:
    """Return the candidates of these units."""
    return find_candidates(Recording(tables={**TABLES, **tables}, units=units, tests=1))


def partners(candidate: Candidate) -> tuple[str, ...]:
    """Return the names of its partners."""
    return tuple(partner.unit for partner in candidate.partners)


def kinds(*units: Unit, **tables: Table) -> list[str]:
    return [candidate.kind for candidate in derive(*units, **tables)]


def with_index(table: Table, *columns: str, predicate: tuple[str, ...] = ()) -> Mapping[str, Table]:
    """Return the table with one more unique index, by its name."""
    index = UniqueIndex(columns=columns, predicate=predicate)
    return {table.name: replace(table, unique=(*table.unique, index))}


def lock_event() -> RecordedStatement:
    return sent(LOCK_EVENT, 3, read=[row("event", 3)])


def insert(sql: str = INSERT, event: int = 3, **fields: Any) -> RecordedStatement:
    return sent(sql, event, "x", 1, read=[row("booking", 9)], **fields)


def look(**fields: Any) -> RecordedStatement:
    return sent(LOOK, 3, "x", **fields)


@contextmanager
def statements_tagged() -> Iterator[None]:
    """Have a backend send each statement with comments of its own, as tracers do it, also behind its verb."""

    class Tagging(CursorWrapper):
        def execute(self, sql: Any, params: Any = None) -> Any:
            verb, _, rest = sql.partition(" ")
            return super().execute(f"/* task={uuid4()} */ {verb}/* /* {uuid4()} */ */{rest} -- {uuid4()}", params)

    with mock.patch.object(BaseDatabaseWrapper, "make_cursor", lambda wrapper, cursor: Tagging(cursor, wrapper)):
        yield
