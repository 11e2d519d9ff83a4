"""Tables that runs write: copied before the first write, put back before each run, and compared after it.

Statements are gathered, because most of what a copy takes is round trips: a statement that may write anything copies
all tables of a project, a hundred of them, and most are empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from psycopg import Error as DriverError
from psycopg import OperationalError

from django_lockstep.lab.explorer.effects.catalog import Catalog, TableLayout, quote_literal, quote_name
from django_lockstep.lab.explorer.effects.statements import Statement
from django_lockstep.lab.explorer.errors import ExplorerError, NotExplorable
from django_lockstep.lab.explorer.tables.control_session import ControlSession
from django_lockstep.lab.explorer.tables.final_state import (
    FIRST_KEY,
    KEY,
    REMOVED,
    Labels,
    Makers,
    StateRow,
    label_keys,
    without_kept,
)
from django_lockstep.lab.explorer.tables.storage import Storage

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

    def difference_queries(self) -> Iterator[str]:
        """Yield queries for the table's name and the rows that are new, and for those that are gone.

        The rows are JSON arrays, without generated keys, times and UUIDs; those of new rows are under `KEY`.
        """
        now = self._listed(self._table, own=self._own_key) + (f" WHERE {self._written}" if self.partial else "")
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
    def _own_key(self) -> str:
        """What adds the key of a new row to its columns."""
        if not self.numbered:
            return ""
        key = quote_name(self.pk or "")
        is_new = f"t.{key} > {FIRST_KEY}"
        if self.rows:
            is_new += f" AND NOT EXISTS (SELECT FROM {self._copy} AS c WHERE c.{key} = t.{key})"
        return f" || CASE WHEN {is_new} THEN jsonb_build_object('{KEY}', t.{key}) ELSE '{{}}' END"

    def _listed(self, table: str, *, alias: str = "t", own: str = "") -> str:
        hidden = ", ".join(map(quote_literal, self.layout.hidden))
        # The alias with an asterisk is always the row; without one it is a column of that name, if there is one.
        return f"SELECT (to_jsonb({alias}.*) - ARRAY[{hidden}]::text[]){own} FROM ONLY {table} AS {alias}"


def _aggregated(name: str, rows: str) -> str:
    return f"SELECT {quote_literal(name)}, coalesce(jsonb_agg(held ORDER BY held), '[]') FROM ({rows}) AS found (held)"


_KEYS = 1_000
"""Keys that each sequence has for a run, so that no two number alike."""
_SEQUENCE = """
SELECT {literal}, last_value, is_called, CASE WHEN seqincrement > 0 THEN seqmax ELSE 0 END
FROM {name}, pg_sequence WHERE seqrelid = {literal}::regclass
"""
MOST_ROWS = 20_000
"""A table with more rows is not copied and put back for every schedule."""
_TIMEOUT = "5s"
"""How long a session that is not an actor's may keep tables from being put back."""

# The xmin of a row has 32 bits of the transaction's number, a snapshot has 64.
_NEXT_TRANSACTION = "SELECT mod(pg_snapshot_xmax(pg_current_snapshot())::text::numeric, 4294967296)::bigint"
_LAYOUTS = """
SELECT t.name, c.oid::bigint,
       (SELECT jsonb_agg(jsonb_build_array(
                   attname, attidentity <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid), '') LIKE 'nextval(%%',
                   attgenerated = '', atttypid IN ('timestamptz'::regtype, 'timestamp'::regtype,
                                                   'time'::regtype, 'timetz'::regtype, 'uuid'::regtype)
               ) ORDER BY attnum)
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = attrelid AND d.adnum = attnum
        WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
       coalesce(
           (SELECT 'its trigger ' || tgname || ' is ENABLE ' || CASE tgenabled WHEN 'A' THEN 'ALWAYS' ELSE 'REPLICA' END
            FROM pg_trigger WHERE tgrelid = c.oid AND tgenabled IN ('A', 'R') AND tgtype::int & 12 <> 0 LIMIT 1),
           (SELECT 'its rule ' || rulename || ' is ENABLE ' || CASE ev_enabled WHEN 'A' THEN 'ALWAYS' ELSE 'REPLICA' END
            FROM pg_rewrite WHERE ev_class = c.oid AND ev_enabled IN ('A', 'R') AND ev_type IN ('3', '4') LIMIT 1),
           CASE WHEN row_security_active(c.oid) THEN 'its policies hide rows from the role of the tests' END)
FROM unnest(%s::text[]) AS t (name) JOIN pg_class c ON c.oid = quote_ident(t.name)::regclass
"""
"""The OIDs of tables; of each column the name, whether it is generated by a sequence, whether it is stored as given,
and whether it is a time or a UUID; and why the table's rows cannot be put back. Bits 4 and 8 of a trigger's type are
INSERT and DELETE, types 3 and 4 of a rule as well."""
_ORDINARY = """
SELECT relname FROM pg_class WHERE relkind = 'r' AND relpersistence <> 't' AND pg_table_is_visible(oid)
       AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
"""
"""All tables that have rows: also those with rules, and those from which other tables inherit."""


class SavedTables:
    """Copies tables of one database, and puts them back; with ``steady`` their physical storage is kept steady, too.

    The copies are temporary tables of the session.
    """

    def __init__(self, session: ControlSession, catalog: Catalog, *, steady: bool) -> None:
        self._session = session
        self._driver = session.driver
        self._catalog = catalog
        self._copies: dict[str, TableCopy] = {}
        self._sequences: set[str] = set()
        """Sequences that are put back; one may number several tables."""
        self._mark_sql = ""
        self._marks = False
        """Whether `mark_keys` counts."""
        self._empty_sql = ""
        self._fill_sql = ""
        # Rows of transactions from this one on may belong to the exploration.
        self._since: int = self._session.query(_NEXT_TRANSACTION)[0][0]
        # As a replica the session fires no triggers and checks no foreign keys, so that the order of tables does not
        # matter.
        self._replica = "SET LOCAL session_replication_role = replica; " if session.skips_triggers else ""
        self._storage = Storage(session) if steady else None
        self._all_saved = False
        """Whether all tables are copied."""

    def close(self) -> None:
        """Leave the tables' storage to the server again; the copies are dropped with the session's release."""
        if self._storage is not None:
            self._storage.close()

    def copy_of(self, table: str) -> TableCopy | None:
        """Return the copy of a table; None if it was not saved."""
        return self._copies.get(table)

    def save(self, tables: Iterable[str]) -> None:
        """Copy tables that are about to be written for the first time."""
        if names := sorted(set(tables) - self._copies.keys()):
            self._save(names)

    def save_for(self, statement: Statement) -> None:
        """Copy the tables that the statement is about to write: all, where that is not known."""
        if statement.kind == "UNKNOWN" or statement.hidden:
            self.save_all()
        else:
            self.save(table for table, _ in statement.writes)

    def save_all(self) -> None:
        """Copy all tables, because anything may be written."""
        if not self._all_saved:
            self.save(name for (name,) in self._session.query(_ORDINARY))
            self._save_sequences(self._catalog.sequences)
            self._all_saved = True

    def _save(self, names: Sequence[str]) -> None:
        layouts = self._layouts(names)
        for name in names:
            # Refused here: the next schedules would begin with other rows, and their verdict would be of these.
            if obstacle := layouts[name].obstacle:
                raise NotExplorable(f"The rows of table {name} cannot be put back for every schedule: {obstacle}")
        counts = self._counts(names)
        copies = [self._copy(name, layouts[name], rows=counts[name]) for name in names]
        if statements := "; ".join(copy.copy_sql() for copy in copies if copy.rows):
            self._driver.execute(statements.encode())
        if self._storage is not None:
            self._storage.add({quote_name(copy.name): copy.rows for copy in copies})
        for copy in copies:
            self._empty_sql += copy.delete_sql()
            self._fill_sql += copy.restore_sql()
            self._copies[copy.name] = copy
        self._save_sequences(
            {sequence for name in names if (table := self._catalog.get(name)) for sequence in table.sequences},
            self._numbered_by(copies),
        )

    def _layouts(self, names: Sequence[str]) -> Mapping[str, TableLayout]:
        remembered = self._catalog.layouts
        missing = [name for name in names if name not in remembered]
        new = {}
        for name, oid, text, obstacle in self._session.query(_LAYOUTS, missing) if missing else ():
            columns = json.loads(text)
            new[name] = TableLayout(
                oid=oid,
                stored=[column for column, _, stored, _ in columns if stored],
                hidden=[column for column, generated, _, varying in columns if generated or varying],
                shown=[column for column, _, _, varying in columns if not varying],
                obstacle=obstacle,
            )
        # Others are no tables of this schema, and may be other ones at the next exploration.
        remembered.update({name: layout for name, layout in new.items() if self._catalog.get(name)})
        return {**remembered, **new}

    def _counts(self, names: Sequence[str]) -> dict[str, int]:
        """Return how many rows they have. Raises `NotExplorable` for a table with more than `MOST_ROWS`."""
        counted = "SELECT {}, count(*) FROM (SELECT FROM ONLY {} LIMIT {}) AS rows"
        queries = [counted.format(quote_literal(name), quote_name(name), MOST_ROWS + 1) for name in names]
        counts: dict[str, int] = dict(self._session.query(" UNION ALL ".join(queries)))
        # Refused here rather than slowly: each schedule would read the whole table.
        for name, count in counts.items():
            if count > MOST_ROWS:
                raise NotExplorable(
                    f"Table {name} has more than {MOST_ROWS} rows, too many to put back for every schedule"
                )
        return counts

    def _copy(self, name: str, layout: TableLayout, *, rows: int) -> TableCopy:
        table = self._catalog.get(name)
        pk, numbered = (table.pk, table.pk in table.numbered) if table is not None else (None, False)
        return TableCopy(name=name, layout=layout, rows=rows, pk=pk, since=self._since, numbered=numbered)

    def _numbered_by(self, copies: Iterable[TableCopy]) -> dict[str, TableCopy]:
        """Return those of the tables that are numbered, by the sequence of their keys."""
        tables = {copy.name: copy for copy in copies if copy.numbered}
        queries = (
            f"SELECT pg_get_serial_sequence({quote_literal(quote_name(name))}, {quote_literal(copy.pk or '')})"
            f"::regclass::text, {quote_literal(name)}"
            for name, copy in tables.items()
        )
        pairs = self._session.query(" UNION ALL ".join(queries)) if tables else ()
        return {sequence: tables[name] for sequence, name in pairs}

    def _save_sequences(self, names: Iterable[str], numbered: Mapping[str, TableCopy] = MappingProxyType({})) -> None:
        if not (new := sorted(set(names) - self._sequences)):
            return
        queries = (_SEQUENCE.format(literal=quote_literal(name), name=name) for name in new)
        mark_sql = ""
        for name, last, called, most in self._session.query(" UNION ALL ".join(queries)):
            # Sequences are not transactional: nextval() of a run stays, whatever its transaction did.
            self._fill_sql += f"SELECT setval({quote_literal(name)}, {last}, {str(called).lower()}); "
            self._sequences.add(name)
            first = FIRST_KEY + len(self._sequences) * _KEYS
            if name in numbered and self._storage is not None and last < first < most - _KEYS:
                table = numbered[name]
                # A sequence that is behind its table has to meet its rows.
                mark_sql += (
                    f"SELECT setval({quote_literal(name)}, {first}) FROM {name} WHERE last_value + is_called::int > "
                    f"(SELECT coalesce(max({quote_name(table.pk or '')}), 0) FROM ONLY {quote_name(table.name)}); "
                )
        self._mark_sql += mark_sql
        if mark_sql and self._marks:
            self._driver.execute(mark_sql.encode())

    def mark_keys(self) -> None:
        """Have keys that sequences give from here on be like no other number, until the tables are put back."""
        self._marks = True
        if self._mark_sql:
            self._driver.execute(self._mark_sql.encode())

    def put_back(self) -> None:
        """Put every saved table back. Raises `ExplorerError` where another session holds a lock on one.

        `NotExplorable` is raised where the tables' own triggers have kept rows from being put back.
        """
        self._marks = False
        if not self._copies:
            return
        self._put_back()
        if not self._replica and (changed := self.changed_rows({})[0]):
            names = ", ".join(sorted({name.removesuffix(REMOVED) for name in changed}))
            raise NotExplorable(
                f"The rows of {names} could not be put back, because triggers or rules change what is written: the "
                "role of the tests needs the right to set session_replication_role"
            )

    def _put_back(self) -> None:
        if self._storage is None:
            self._send(self._empty_sql + self._fill_sql)
            return
        # One round trip: the query on the tables' use runs before they are put back.
        usage = self._storage.usage_query()
        cursor = self._send(self._empty_sql + self._fill_sql, before=usage)
        # Dead rows of earlier explorations fill a page too, and are removed before the next run if they do.
        if self._storage.needs_vacuum([float(size) for (size,) in cursor.fetchall()] if usage else ()):
            self._send(self._empty_sql)
            self._storage.vacuum()
            self._send(self._fill_sql)

    def _send(self, sql: str, *, before: str = "") -> Any:
        # LOCAL, because the session is kept; a lock_timeout, because a session beside the actors may hold a lock on a
        # table.
        settings = f"{self._replica}SET LOCAL synchronous_commit = off; SET LOCAL lock_timeout = '{_TIMEOUT}'; "
        try:
            # Several statements in one round trip: without parameters psycopg sends them as one simple query.
            return self._driver.cursor().execute(f"{before}BEGIN; {settings}{sql}COMMIT".encode())
        except DriverError as error:
            with suppress(OperationalError):  # the server may be gone
                self._driver.rollback()
            tables = ", ".join(f"{copy.name} ({copy.rows} rows before the race)" for copy in self._copies.values())
            raise ExplorerError(
                f"These tables could not be put back, and may still contain rows of the race: {tables}: {error}"
            ) from error

    def changed_rows(self, makers: Makers) -> tuple[dict[str, Sequence[StateRow]], Labels]:
        """Return the rows by which the tables differ from before, removed rows under a name with `REMOVED`; and labels.

        Without generated keys, times and UUIDs, which differ between equivalent runs; a new row's key is under `KEY`,
        and the labels have how keys are shown. Decimal numbers are text, so that they stay exact.
        """
        if not self._copies:
            return {}, {}
        parts = [part for name in sorted(self._copies) for part in self._copies[name].difference_queries()]
        # Django has the driver return jsonb as text.
        found = self._driver.cursor().execute(" UNION ALL ".join(parts).encode(), prepare=True).fetchall()
        rows = {name: json.loads(text, parse_float=str) for name, text in sorted(found) if text != "[]"}
        labels: dict[str, str] = {}
        for copy in (copy for copy in self._copies.values() if copy.numbered):
            keys = [row[KEY] for row in rows.get(copy.name, ()) if KEY in row]
            labels |= label_keys(keys, makers.get(copy.layout.oid, {}))
            if keys and (removed := copy.name + REMOVED) in rows:
                rows[copy.name], rows[removed] = without_kept(rows[copy.name], rows[removed])
        return {name: held for name, held in rows.items() if held}, labels
