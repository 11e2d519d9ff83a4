"""Tables as SQL that recreates them: columns, rows, constraints, indexes, triggers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from django_lockstep.lab.explorer.effects.layouts import quote_name
from django_lockstep.lab.explorer.errors import NotWritable

__all__ = ["Dump"]

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
        asked = f"SELECT {_NEXT} FROM {sequence}, pg_sequence WHERE seqrelid = %s::regclass"
        ((following,),) = self._query(asked, sequence)
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
