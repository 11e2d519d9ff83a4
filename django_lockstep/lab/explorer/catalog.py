"""What the database's catalog says about tables: keys, references, triggers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Catalog", "Table"]

_TABLES = """
SELECT c.relname,
       (SELECT CASE WHEN count(*) = 1 THEN min(a.attname) END FROM pg_index i JOIN pg_attribute a
        ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey) WHERE i.indrelid = c.oid AND i.indisprimary),
       -- Columns of an index expression are not listed there, so that such an index counts as being on all columns.
       ARRAY(SELECT DISTINCT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
             AND (a.attnum = ANY (i.indkey) OR 0 = ANY (i.indkey) OR i.indpred IS NOT NULL)
             WHERE i.indrelid = c.oid AND i.indisunique)::text[],
       ARRAY(SELECT DISTINCT f.confrelid::regclass::text FROM pg_constraint f
             WHERE f.conrelid = c.oid AND f.contype = 'f'),
       ARRAY(SELECT DISTINCT f.conrelid::regclass::text FROM pg_constraint f
             WHERE f.confrelid = c.oid AND f.contype = 'f'),
       ARRAY(SELECT DISTINCT f.conrelid::regclass::text FROM pg_constraint f
             WHERE f.confrelid = c.oid AND f.contype = 'f' AND f.confdeltype::text || f.confupdtype::text <> 'aa'),
       -- A function whose source sends no SQL can only change or refuse the row at hand.
       EXISTS (SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
               WHERE t.tgrelid = c.oid AND NOT t.tgisinternal
               AND p.prosrc ~* '\\m(select|insert|update|delete|merge|execute|perform|call|copy|truncate|into)\\M'),
       EXISTS (SELECT FROM pg_rewrite w WHERE w.ev_class = c.oid) OR c.relkind <> 'r' OR c.relhassubclass
FROM pg_class c WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND pg_table_is_visible(c.oid)
     AND c.relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What matters about one table."""

    name: str
    pk: str | None
    """The primary key's column, if it is one."""
    unique: frozenset[str]
    """Columns of unique indexes: changing them takes the stronger lock, and may wait for another row's writer."""
    parents: frozenset[str]
    """Tables that it refers to."""
    children: frozenset[str]
    """Tables that refer to it."""
    cascades: frozenset[str]
    """Of these, the ones that the server changes along with it."""
    triggered: bool
    """Whether a trigger of it may do anything."""
    special: bool
    """Whether it is a view, a partition or has rules."""


class Catalog:
    """The tables that unqualified names mean on one connection."""

    def __init__(self, tables: Iterable[Table]) -> None:
        self._tables: Mapping[str, Table] = {table.name: table for table in tables}
        self._changed_with: dict[str, frozenset[str]] = {}
        self.understood: dict[Any, Any] = {}
        """What statements came to that were understood with these tables."""

    @classmethod
    def load(cls, cursor: Any) -> Catalog:
        """Read it from the server."""
        cursor.execute(_TABLES)
        return cls(
            Table(
                name=name,
                pk=pk,
                unique=frozenset(unique),
                parents=frozenset(parents),
                children=frozenset(children),
                cascades=frozenset(cascades),
                triggered=triggered,
                special=special,
            )
            for name, pk, unique, parents, children, cascades, triggered, special in cursor.fetchall()
        )

    def get(self, name: str) -> Table | None:
        """Return the table, or None if there is none of this name."""
        return self._tables.get(name)

    def ordinary(self) -> list[str]:
        """Return the names of all tables with rows of their own."""
        return sorted(name for name, table in self._tables.items() if not table.special)

    def changed_with(self, name: str) -> frozenset[str]:
        """Return the tables that a write to this one may change; all of them where a trigger may do anything."""
        if name not in self._changed_with:
            self._changed_with[name] = frozenset(self._reached(name))
        return self._changed_with[name]

    def _reached(self, name: str) -> set[str]:
        reached: set[str] = set()
        waiting = [name]
        while waiting:
            table = self._tables.get(waiting.pop())
            if table is None or table.triggered or table.special:
                return set(self.ordinary())
            reached.add(table.name)
            waiting.extend(table.cascades - reached)
        return reached
