"""The SQL that copies a table, puts it back and compares it: all of it, or only the rows written since.

A small table is emptied and filled again for each schedule, so that its rows are always stored in the same order. Of a
large one only rows written since the exploration began are put back: those of younger transactions (``xmin``). So the
cost of a schedule hardly depends on the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django_lockstep.lab.explorer.effects.layouts import Column, Layout, quote_literal, quote_name
from django_lockstep.lab.explorer.tables.final_state import REMOVED

__all__ = ["LARGE", "NEW", "TableCopy"]

NEW = ", new"
"""Suffix of a table's name for the keys of its new rows."""
LARGE = 20
"""From this number of rows on, only those written are put back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCopy:
    """A table and the temporary copy of what it held when the exploration first wrote it."""

    name: str
    layout: Layout
    rows: int
    """How many rows it held."""
    pk: str | None
    """The primary key's column, if it is one."""
    since: int
    """The first transaction that may belong to the exploration."""

    @property
    def columns(self) -> Sequence[Column]:
        return self.layout.columns

    @property
    def partial(self) -> bool:
        """Whether only the rows written since are put back."""
        return self.rows >= LARGE and self.pk is not None

    @property
    def generates_keys(self) -> bool:
        """Whether a sequence numbers its primary key."""
        return any(column.generated and column.name == self.pk for column in self.columns)

    def copy_sql(self) -> str:
        return f"CREATE TEMP TABLE {self._copy} AS TABLE {self._table}"

    def delete_sql(self) -> str:
        """Return the statement that removes the rows that may have been changed."""
        return f"DELETE FROM {self._table} AS t{f' WHERE {self._written}' if self.partial else ''}; "

    def restore_sql(self) -> str:
        """Return the statement that inserts missing rows from the copy; empty for a table that was empty."""
        if not self.rows:
            return ""
        stored = ", ".join(quote_name(column.name) for column in self.columns if column.stored)
        # The count costs less than the anti-join, which most schedules do not need.
        gone = f" AND {self._gone}" if self.partial else ""
        return (
            # OVERRIDING SYSTEM VALUE: identity columns GENERATED ALWAYS get their old values too.
            f"INSERT INTO {self._table} ({stored}) OVERRIDING SYSTEM VALUE SELECT {stored} FROM {self._copy} AS c "
            f"WHERE (SELECT count(*) FROM {self._table}) < {self.rows}{gone}; "
        )

    def difference_queries(self) -> Iterator[str]:
        """Yield queries for the table's name and the rows that are new, and for those that are gone.

        The rows are JSON arrays, without generated keys, times and UUIDs.
        """
        now = self._listed(self._table) + (f" WHERE {self._written}" if self.partial else "")
        if not self.rows:
            yield _aggregated(self.name, now)
            return
        before = self._listed(self._copy, alias="c")
        if self.partial:
            untouched = f"(SELECT count(*) FROM {self._table} AS t WHERE NOT {self._written})"
            before += f" WHERE {untouched} < {self.rows} AND {self._gone}"
        yield (
            # MATERIALIZED, because each is used twice; EXCEPT ALL, because equal rows count as often as they occur.
            f"SELECT * FROM (WITH now (held) AS MATERIALIZED ({now}), before (held) AS MATERIALIZED ({before}) "
            f"{_aggregated(self.name, 'TABLE now EXCEPT ALL TABLE before')} UNION ALL "
            f"{_aggregated(self.name + REMOVED, 'TABLE before EXCEPT ALL TABLE now')}) AS differences"
        )

    def new_keys_query(self) -> str:
        """Return a query for the table's name with `NEW`, and the primary keys that rows have now and none had before.

        Only where `generates_keys`.
        """
        key = quote_name(self.pk or "")
        conditions = [self._written] if self.partial else []
        if self.rows:
            conditions.append(f"NOT EXISTS (SELECT FROM {self._copy} AS c WHERE c.{key} = t.{key})")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        keys = f"coalesce(jsonb_agg(t.{key}), '[]')"
        return f"SELECT {quote_literal(self.name + NEW)}, {keys} FROM {self._table} AS t{where}"

    def first_rows_sql(self, most: int) -> str:
        """Return the query for its first rows as one JSON array, the primary key's column first, without times."""
        shown = [column.name for column in self.columns if not column.varying and column.name != self.pk]
        names = ", ".join(map(quote_name, [self.pk, *shown] if self.pk else shown)) or "NULL"
        order = f" ORDER BY {quote_name(self.pk)}" if self.pk else ""
        rows = f"SELECT {names} FROM {self._table}{order} LIMIT {most}"
        return f"SELECT coalesce(json_agg(r), '[]') FROM ({rows}) AS r"

    @property
    def _table(self) -> str:
        return quote_name(self.name)

    @property
    def _copy(self) -> str:
        return quote_name(f"saved {self.name}"[:63])

    @property
    def _written(self) -> str:
        return f"age(t.xmin) <= (SELECT age('{self.since}'::xid))"

    @property
    def _gone(self) -> str:
        key = quote_name(self.pk or "")
        return f"NOT EXISTS (SELECT FROM {self._table} AS t WHERE t.{key} = c.{key} AND NOT {self._written})"

    def _listed(self, table: str, *, alias: str = "t") -> str:
        hidden = ", ".join(quote_literal(column.name) for column in self.columns if column.generated or column.varying)
        return f"SELECT to_jsonb({alias}) - ARRAY[{hidden}]::text[] FROM {table} AS {alias}"


def _aggregated(name: str, rows: str) -> str:
    return f"SELECT {quote_literal(name)}, coalesce(jsonb_agg(held ORDER BY held), '[]') FROM ({rows}) AS found (held)"
