"""What is seen and held between two moves of a run, as the server has it: locks, and the rows that each actor sees."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from psycopg.pq import TransactionStatus

from django_lockstep.lab.explorer.driver.actors import Actor
from django_lockstep.lab.explorer.driver.hooks import Hooks, one_value
from django_lockstep.lab.explorer.driver.server import Server
from django_lockstep.lab.explorer.driver.trace import Trace
from django_lockstep.lab.explorer.effects.catalog import quote_literal, quote_name
from django_lockstep.lab.explorer.results import HeldLock, SeenRows
from django_lockstep.lab.explorer.steps import Masker

_MULTIXACT = {
    "keysh": "FOR KEY SHARE",
    "sh": "FOR SHARE",
    "fornokeyupd": "FOR NO KEY UPDATE",
    "nokeyupd": "FOR NO KEY UPDATE",
    "forupd": "FOR UPDATE",
    "upd": "FOR UPDATE",
}
"""The strengths as pg_get_multixact_members() names them; the longer names are of locks, the others of writes."""
_ROW_MODES = ("RowShareLock", "RowExclusiveLock")
"""Locks of tables that statements take before they lock or write rows."""
# The transactions' numbers include those of subtransactions, which lock rows by their own.
_LISTED = """
SELECT json_agg(json_build_array(l.pid, l.locktype, l.mode, c.oid::regclass::text, l.transactionid::text::bigint,
    CASE l.objsubid WHEN 2 THEN format('%s, %s', l.classid::int, l.objid::int)
                    ELSE (l.classid::bigint << 32 | l.objid::bigint)::text END, (
        SELECT json_agg(attname ORDER BY attnum) FROM pg_index i
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
        WHERE i.indrelid = c.oid AND i.indisprimary)))
FROM pg_locks l LEFT JOIN pg_class c ON c.oid = l.relation
WHERE l.granted AND l.pid = ANY ('{{{pids}}}') AND (
    l.locktype IN ('transactionid', 'advisory')
    OR l.locktype = 'relation' AND l.mode <> 'AccessShareLock' AND c.relkind = 'r' AND c.oid >= 16384
    AND c.relpersistence <> 't')
"""
_MARKED = """
WITH "marked," AS MATERIALIZED (
    SELECT ctid AS place, xmax::text::bigint AS holder, json_build_object({key}) AS key,
           CASE WHEN mxid_age(xmax) BETWEEN 1 AND
                     (SELECT mxid_age(datminmxid) FROM pg_database WHERE datname = current_database())
                THEN (SELECT json_agg(json_build_array(xid::text::bigint, mode)) FROM pg_get_multixact_members(xmax))
           END AS members
    FROM ONLY {table} WHERE xmax <> 0
), "single," AS (SELECT array_agg(place) AS places FROM "marked," WHERE holder = ANY ('{{{xids}}}'))
, "weakest," AS (SELECT ctid FROM ONLY {table} WHERE ctid = ANY ((SELECT places FROM "single,")::tid[])
              FOR KEY SHARE SKIP LOCKED)
, "weaker," AS (SELECT ctid FROM ONLY {table} WHERE ctid = ANY ((SELECT places FROM "single,")::tid[])
             FOR SHARE SKIP LOCKED)
, "strong," AS (SELECT ctid FROM ONLY {table} WHERE ctid = ANY ((SELECT places FROM "single,")::tid[])
             FOR NO KEY UPDATE SKIP LOCKED)
SELECT json_agg(json_build_array(holder, key, members,
    CASE WHEN place NOT IN (SELECT ctid FROM "weakest,") THEN 'FOR UPDATE'
         WHEN place NOT IN (SELECT ctid FROM "weaker,") THEN 'FOR NO KEY UPDATE'
         WHEN place NOT IN (SELECT ctid FROM "strong,") THEN 'FOR SHARE'
         ELSE 'FOR KEY SHARE' END) ORDER BY place)
FROM "marked," WHERE holder = ANY ('{{{xids}}}') OR members IS NOT NULL
"""


_MOST_ROWS = 8
"""Rows of each table, the first ones by the primary key."""
_HAS_SNAPSHOT = "SELECT FROM pg_stat_activity WHERE pid = %s AND backend_xmin IS NOT NULL"
_BEGIN = "SAVEPOINT lockstep_seen; SET LOCAL lock_timeout = '50ms'"
_END = "ROLLBACK TO SAVEPOINT lockstep_seen; RELEASE SAVEPOINT lockstep_seen"

_Row = Mapping[str, str | None]


class Watch:
    """Asks, after each move of a run, who holds which locks, and what is seen in the tables that it writes.

    ``servers`` are the explorer's own sessions. The locks include what no statement says: rows that foreign keys and
    triggers have locked. PostgreSQL keeps no list of row locks: the number of the transaction that locks a row stands
    in the row itself (``xmax``), or that of a list of several, a multixact, with the strength of each (PostgreSQL
    documentation, 24.1.5.1 and 13.3.2). How strongly a single one has locked a row is found out with SKIP LOCKED: the
    weakest lock that the row refuses says it. The explorer's own session takes and releases these locks while all
    actors stand or wait, so that none of them can notice.

    An actor that stands at a gate is asked for the rows in its own session, inside a savepoint that is rolled back, so
    that neither a lock nor a setting is left. Nothing is asked that could change what follows: a SERIALIZABLE
    transaction would remember the read, and one at REPEATABLE READ without a snapshot would take it too early. What
    waits cannot be asked.
    """

    def __init__(self, actors: Sequence[Actor], *, run: Trace, servers: Mapping[str, Server]) -> None:
        self._actors = actors
        self._servers = servers
        self._masker = Masker()
        # Of the tables that the run's statements write, as far as they are understood.
        written = {
            (step.operation.alias, table): None
            for step in run.steps
            for table, _ in (step.operation.statement.writes if step.operation.statement else ())
        }
        self._queries = {
            (alias, table): copy.first_rows_sql(_MOST_ROWS)
            for alias, table in written
            if (copy := servers[alias].tables.copies.get(table)) is not None
        }
        self.held: list[HeldLock] = []
        """The locks after all moves, with secrets masked."""
        self._seen: list[SeenRows] = []

    def look(self, move: int, standing: Collection[int]) -> None:
        """Ask after this move; ``standing`` are the actors at gates."""
        if move < 0:  # the run was begun again
            self.held.clear()
            self._seen.clear()
        for alias, server in self._servers.items():
            names = {actor.hooks[alias].pid: actor.name for actor in self._actors if alias in actor.hooks}
            self.held += [
                HeldLock(move=move, actor=names[pid], what=what, strength=strength)
                for pid, what, strength in dict.fromkeys(_held(server, names, self._masker))
            ]
        for (alias, table), query in self._queries.items():
            self._note(move, "", table, self._servers[alias].committed(query))
            for actor in self._actors:
                hooks = actor.hooks.get(alias)
                if actor.index in standing and hooks is not None and self._may_ask(alias, hooks):
                    self._note(move, actor.name, table, _asked(hooks, query))

    def seen(self) -> tuple[SeenRows, ...]:
        """Return what was seen of the tables and columns in which something changes, with secrets masked."""
        masker = Masker()
        for row in (row for sight in self._seen for row in sight.rows):
            for column, value in row.items():
                masker.note(column, [value])
        return tuple(_changing(self._seen, masker))

    def _note(self, move: int, actor: str, table: str, answer: str | None) -> None:
        if answer is not None:
            rows = tuple(
                {name: _text(value) for name, value in row.items()} for row in json.loads(answer, parse_float=str)
            )
            self._seen.append(SeenRows(move=move, actor=actor, table=table, rows=rows))

    def _may_ask(self, alias: str, hooks: Hooks) -> bool:
        if hooks.driver.info.transaction_status is not TransactionStatus.INTRANS:
            return False  # it sees what is committed, or its transaction has failed
        level = one_value(hooks.driver, "SHOW transaction_isolation")
        return level == "read committed" or (
            level == "repeatable read" and bool(self._servers[alias].query(_HAS_SNAPSHOT, hooks.pid))
        )


def _held(server: Server, pids: Collection[int], masker: Masker) -> Iterator[tuple[int, str, str]]:
    """Yield process, what it has locked, and how."""
    listed = json.loads(server.committed(_LISTED.format(pids=_joined(pids))) or "[]")
    owners: dict[int, int] = {xid: pid for pid, kind, _, _, xid, *_ in listed if kind == "transactionid"}
    tables: dict[str, list[str]] = {}
    for pid, kind, mode, table, _, number, key in listed:
        if kind == "advisory":
            yield pid, f"advisory key {number}", _words(mode)
        elif table and mode in _ROW_MODES:
            tables[table] = key or []
        elif table:
            yield pid, table, _words(mode)
    for table, key in sorted(tables.items()) if owners else ():
        for xid, row, strength in _locked_rows(server, table, key=key, xids=owners):
            for name, value in row.items():
                masker.note(name, [value])
            shown = ", ".join(f"{name}={value}" for name, value in masker.mask_row(row).items())
            yield owners[xid], f"{table} {shown}".rstrip(), strength


def _locked_rows(
    server: Server, table: str, *, key: Sequence[str], xids: Collection[int]
) -> Iterator[tuple[int, dict[str, str | None], str]]:
    """Yield transaction, primary key and strength; nothing if the table cannot be read or locked by the explorer."""
    columns = ", ".join(f"{quote_literal(name)}, {quote_name(name)}::text" for name in key)
    query = _MARKED.format(table=table, key=columns, xids=_joined(xids))
    for holder, row, members, strength in json.loads(server.committed(query) or "[]"):
        several = [(xid, _MULTIXACT[mode]) for xid, mode in members or () if xid in xids]
        single = [(holder, strength)] if holder in xids else []
        # The numbers of transactions and of multixacts are counted apart: a row where both fit is left out.
        for xid, lock in several or single if not (several and single) else ():
            yield xid, row, lock


def _words(mode: str) -> str:
    """Return the name of a table's lock as LOCK TABLE writes it: ``AccessExclusiveLock`` is ACCESS EXCLUSIVE."""
    letters = "".join(f" {letter}" if letter.isupper() else letter for letter in mode.removesuffix("Lock"))
    return letters.strip().upper()


def _joined(numbers: Collection[int]) -> str:
    return ",".join(map(str, numbers))


def _asked(hooks: Hooks, query: str) -> str | None:
    """Return the answer in the actor's transaction; None if there is none, because the table is locked for one."""
    hooks.send_out_of_band(_BEGIN)
    try:
        return one_value(hooks.driver, query)
    finally:
        hooks.send_out_of_band(_END)
        if hooks.counters is not None:
            hooks.counters.skip()


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value) if isinstance(value, bool | int) else json.dumps(value)


def _changing(seen: Sequence[SeenRows], masker: Masker) -> Iterable[SeenRows]:
    for table in dict.fromkeys(sight.table for sight in seen):
        mine = [sight for sight in seen if sight.table == table]
        columns = _changing_columns([row for sight in mine for row in sight.rows], [sight.rows for sight in mine])
        for sight in mine if columns else ():
            rows = tuple(masker.mask_row({name: row[name] for name in columns}) for row in sight.rows)
            yield SeenRows(move=sight.move, actor=sight.actor, table=table, rows=rows)


def _changing_columns(rows: Sequence[_Row], sights: Sequence[Sequence[_Row]]) -> list[str]:
    """Return the first column, by which rows are told apart, and those that differ between two sights of its rows."""
    if not rows or all(sight == sights[0] for sight in sights):
        return []
    key, *others = rows[0]
    values: dict[tuple[str, str | None], set[str | None]] = {}
    for row in rows:
        for name in others:
            values.setdefault((name, row[key]), set()).add(row[name])
    changed = {name for (name, _), texts in values.items() if len(texts) > 1}
    # Where only whole rows come or go, every column with a value says something.
    filled = {name for row in rows for name in others if row[name] is not None}
    shown = changed or filled
    return [key, *(name for name in others if name in shown)]
