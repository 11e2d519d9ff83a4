"""Which rows each actor sees between two moves of a run: those that are committed, or those of its open transaction.

An actor that stands at a gate is asked in its own session, inside a savepoint that is rolled back, so that neither a
lock nor a setting is left. Nothing is asked that could change what follows: a SERIALIZABLE transaction would remember
the read, and one at REPEATABLE READ without a snapshot would take it too early. What waits cannot be asked.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from psycopg.pq import TransactionStatus

from django_lockstep.lab.explorer.driver.actors import Actor
from django_lockstep.lab.explorer.driver.hooks import Hooks
from django_lockstep.lab.explorer.driver.server import Server
from django_lockstep.lab.explorer.driver.trace import Trace
from django_lockstep.lab.explorer.masking import Masker
from django_lockstep.lab.explorer.results import SeenRows

__all__ = ["RowWatch", "written_tables"]

_MOST_ROWS = 8
"""Rows of each table, the first ones by the primary key."""
_BEGIN = "SAVEPOINT lockstep_seen; SET LOCAL lock_timeout = '50ms'"
_END = "ROLLBACK TO SAVEPOINT lockstep_seen; RELEASE SAVEPOINT lockstep_seen"

_Row = Mapping[str, str | None]


def written_tables(trace: Trace) -> dict[str, list[str]]:
    """Return the tables that the run's statements write, by alias, as far as they are understood."""
    found: dict[str, list[str]] = {}
    for step in trace.steps:
        for table, _ in step.operation.statement.writes if step.operation.statement else ():
            if table not in found.setdefault(step.operation.alias, []):
                found[step.operation.alias].append(table)
    return found


class RowWatch:
    """Asks, after each move of a run, what is seen in these tables; ``servers`` are the explorer's own sessions."""

    def __init__(
        self, actors: Sequence[Actor], tables: Mapping[str, Collection[str]], *, servers: Mapping[str, Server]
    ) -> None:
        self._actors = actors
        self._servers = servers
        self._queries = {
            (alias, table): copy.first_rows_sql(_MOST_ROWS)
            for alias, names in tables.items()
            for table in names
            if (copy := servers[alias].tables.copy_of(table)) is not None
        }
        self._seen: list[SeenRows] = []

    def look(self, move: int, standing: Collection[int]) -> None:
        """Ask after this move; ``standing`` are the actors at gates."""
        if move < 0:
            self._seen.clear()  # the run was begun again
        for (alias, table), query in self._queries.items():
            self._note(move, "", table, self._servers[alias].committed(query))
            for actor in self._actors:
                hooks = actor.hooks.get(alias)
                if actor.index in standing and hooks is not None and self._may_ask(alias, hooks):
                    self._note(move, actor.name, table, _asked(hooks, query))

    def seen(self) -> tuple[SeenRows, ...]:
        """Return what was seen of the tables and columns in which something changes, with secrets masked."""
        masker = Masker()
        for row in (row for each in self._seen for row in each.rows):
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
        if hooks.status is not TransactionStatus.INTRANS:
            return False  # it sees what is committed, or its transaction has failed
        level = hooks.setting("transaction_isolation")
        return level == "read committed" or (
            level == "repeatable read" and self._servers[alias].has_snapshot(hooks.pid)
        )


def _asked(hooks: Hooks, query: str) -> str | None:
    """Return the answer in the actor's transaction; None if there is none, because the table is locked for one."""
    hooks.send_out_of_band(_BEGIN)
    try:
        return hooks.value_out_of_band(query)
    finally:
        hooks.send_out_of_band(_END)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value) if isinstance(value, bool | int) else json.dumps(value)


def _changing(seen: Sequence[SeenRows], masker: Masker) -> Iterable[SeenRows]:
    for table in dict.fromkeys(each.table for each in seen):
        mine = [each for each in seen if each.table == table]
        columns = _changing_columns([row for each in mine for row in each.rows], [each.rows for each in mine])
        for each in mine if columns else ():
            rows = tuple(masker.mask_row({name: row[name] for name in columns}) for row in each.rows)
            yield SeenRows(move=each.move, actor=each.actor, table=table, rows=rows)


def _changing_columns(rows: Sequence[_Row], sights: Sequence[Sequence[_Row]]) -> list[str]:
    """Return the first column, by which rows are told apart, and those that differ between two sights of its rows."""
    if not rows or all(sight == sights[0] for sight in sights):
        return []
    key, *others = rows[0]
    values: dict[tuple[str, str | None], set[str | None]] = {}
    for row in rows:
        for name in others:
            values.setdefault((name, row[key]), set()).add(row[name])
    changed = {name for (name, _), found in values.items() if len(found) > 1}
    # Where only whole rows come or go, every column with a value says something.
    filled = {name for row in rows for name in others if row[name] is not None}
    shown = changed or filled
    return [key, *(name for name in others if name in shown)]
