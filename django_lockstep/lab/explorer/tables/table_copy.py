"""A copied table: the SQL that puts it back, and that compares it with the copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from django_lockstep.lab.explorer.effects.catalog import TableLayout, quote_literal, quote_name
from django_lockstep.lab.explorer.tables.final_state import KEY, REMOVED

LARGE = 20
"""From this number of rows on, only those written are put back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCopy:
    """A table and the temporary copy of what it held when the exploration first wrote it; the SQL that puts it back.

    A small table is emptied and filled again for each schedule, so that its rows are always stored in the same order.
    Of a large one only rows written since the exploration began are put back: those of younger transactions (``xmin``).
    So the cost of a schedule hardly depends on the number of rows.
    """

    name: str
    layout: TableLayout
    rows: int
    """How many rows it held."""
    pk: str | None
    """The primary key's column, if it is one."""
    since: int
    """The first transaction that may belong to the exploration."""
    numbered: bool = False
    """Whether a sequence gives its primary keys, which may be any numbers."""

    @property
    def partial(self) -> bool:
        """Whether only the rows written since are put back."""
        return self.rows >= LARGE and self.pk is not None

    def copy_sql(self) -> str:
        return f"CREATE TEMP TABLE {self._copy} AS SELECT * FROM ONLY {self._table}"

    def delete_sql(self) -> str:
        """Return the statement that removes the rows that may have been changed."""
        return f"DELETE FROM ONLY {self._table} AS t{f' WHERE {self._written}' if self.partial else ''}; "

    def restore_sql(self) -> str:
        """Return the statement that inserts missing rows from the copy; empty for a table that was empty."""
        if not self.rows:
            return ""
        stored = ", ".join(map(quote_name, self.layout.stored))
        # The count costs less than the anti-join, which most schedules do not need.
        gone = f" AND {self._gone}" if self.partial else ""
        return (
            # OVERRIDING SYSTEM VALUE: identity columns GENERATED ALWAYS get their old values too.
            f"INSERT INTO {self._table} ({stored}) OVERRIDING SYSTEM VALUE SELECT {stored} FROM {self._copy} AS c "
            f"WHERE (SELECT count(*) FROM ONLY {self._table}) < {self.rows}{gone}; "
        )

    def difference_queries(self, first_key: int | None) -> Iterator[str]:
        """Yield queries for the table's name and the rows that are new, and for those that are gone.

        The rows are JSON arrays, without generated keys, times and UUIDs; those of new rows are under `KEY`, if they
        are above ``first_key``.
        """
        own = "" if first_key is None else self._own_key(first_key)
        now = self._listed(self._table, own=own) + (f" WHERE {self._written}" if self.partial else "")
        if not self.rows:
            yield _aggregated(self.name, now)
            return
        before = self._listed(self._copy, alias="c")
        if self.partial:
            untouched = f"(SELECT count(*) FROM ONLY {self._table} AS t WHERE NOT {self._written})"
            before += f" WHERE {untouched} < {self.rows} AND {self._gone}"
        yield (
            # MATERIALIZED, because each is used twice; EXCEPT ALL, because equal rows count as often as they occur.
            # The names of a WITH hide tables of these names, so they are none that a project's table has.
            f'SELECT * FROM (WITH "now," (held) AS MATERIALIZED ({now}), "before," (held) AS MATERIALIZED ({before}) '
            + _aggregated(self.name, 'TABLE "now," EXCEPT ALL TABLE "before,"')
            + " UNION ALL "
            + _aggregated(self.name + REMOVED, 'TABLE "before," EXCEPT ALL TABLE "now,"')
            + ") AS differences"
        )

    def new_keys_sql(self) -> str:
        """Return the query for the table's name and the keys, as text, of the rows that are not in the copy."""
        key = f"{quote_name(self.pk or '')}::text"
        return f"SELECT {quote_literal(self.name)}, {key} FROM ONLY {self._table} AS t WHERE {self._is_new}"

    def keep_sql(self, keys: Iterable[str]) -> tuple[str, str]:
        """Return what copies the rows with these keys, and what inserts them beside the rows that were put back."""
        kept, listed = f'pg_temp."kept {self.layout.oid}"', ", ".join(map(quote_literal, sorted(keys)))
        key, stored = quote_name(self.pk or ""), ", ".join(map(quote_name, self.layout.stored))
        rows = f"SELECT * FROM ONLY {self._table} WHERE {key}::text IN ({listed})"
        insert = f"INSERT INTO {self._table} ({stored}) OVERRIDING SYSTEM VALUE SELECT {stored} FROM {kept}"
        sequence = f"pg_get_serial_sequence({quote_literal(self._table)}, {quote_literal(self.pk or '')})"
        # The next row must not meet them.
        count = (
            f"SELECT setval(s, last) FROM CAST({sequence} AS regclass) AS s, "
            f"(SELECT max({key}) FROM {self._table}) AS r (last) WHERE last > coalesce(pg_sequence_last_value(s), 0); "
        )
        return (
            f"CREATE TEMP TABLE {kept} ON COMMIT DROP AS {rows}; ",
            f"{insert} ON CONFLICT DO NOTHING; {count if self.numbered else ''}",
        )

    def orphans_sql(self, column: str, parent: str, parent_key: str) -> str:
        """Return what deletes rows that are not in the copy, and refer to a row that is not there."""
        column = f"t.{quote_name(column)}"
        there = f"EXISTS (SELECT FROM {quote_name(parent)} AS p WHERE p.{quote_name(parent_key)} = {column})"
        return f"DELETE FROM ONLY {self._table} AS t WHERE {self._is_new} AND {column} IS NOT NULL AND NOT {there}; "

    def first_rows_sql(self, most: int) -> str:
        """Return the query for its first rows as one JSON array, the primary key's column first, without times."""
        shown = [name for name in self.layout.shown if name != self.pk]
        names = ", ".join(map(quote_name, [self.pk, *shown] if self.pk else shown)) or "NULL"
        order = f" ORDER BY {quote_name(self.pk)}" if self.pk else ""
        rows = f"SELECT {names} FROM {self._table}{order} LIMIT {most}"
        return f"SELECT coalesce(json_agg(r.*), '[]') FROM ({rows}) AS r"

    @property
    def _table(self) -> str:
        return quote_name(self.name)

    @property
    def _copy(self) -> str:
        # Not by the table's name, which may be as long as a name can be.
        return f'pg_temp."saved {self.layout.oid}"'

    @property
    def _written(self) -> str:
        return f"age(t.xmin) <= (SELECT age('{self.since}'::xid))"

    @property
    def _gone(self) -> str:
        key = quote_name(self.pk or "")
        return f"NOT EXISTS (SELECT FROM ONLY {self._table} AS t WHERE t.{key} = c.{key} AND NOT {self._written})"

    @property
    def _is_new(self) -> str:
        key = quote_name(self.pk or "")
        return f"NOT EXISTS (SELECT FROM {self._copy} AS c WHERE c.{key} = t.{key})" if self.rows else "true"

    def _own_key(self, first: int) -> str:
        """Return what adds the key of a new row to its columns."""
        key = quote_name(self.pk or "")
        is_new = f"t.{key} > {first} AND {self._is_new}"
        return f" || CASE WHEN {is_new} THEN jsonb_build_object('{KEY}', t.{key}) ELSE '{{}}' END"

    def _listed(self, table: str, *, alias: str = "t", own: str = "") -> str:
        hidden = ", ".join(map(quote_literal, self.layout.hidden))
        # The alias with an asterisk is always the row; without one it is a column of that name, if there is one.
        return f"SELECT (to_jsonb({alias}.*) - ARRAY[{hidden}]::text[]){own} FROM ONLY {table} AS {alias}"


def _aggregated(name: str, rows: str) -> str:
    return f"SELECT {quote_literal(name)}, coalesce(jsonb_agg(held ORDER BY held), '[]') FROM ({rows}) AS found (held)"
