"""Keeps what is physically there alike from run to run.

A scan without ORDER BY meets and locks rows in the order in which they lie, and an update that no longer fits into its
page leaves traces in indexes, which SERIALIZABLE notices. So dead rows keep their places during a run, and are removed
between runs before a page is full. And the planner is to think of the tables as never vacuumed, whatever autovacuum
tells it: else it scans a small table whole at one time and by its index at another, and SERIALIZABLE locks accordingly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from psycopg.pq import TransactionStatus

from django_lockstep.lab.explorer.control_session import ControlSession

__all__ = ["Storage"]

_MOST_RUNS = 300
_MOST_DEAD_ROWS = 20_000
_FEW_ROWS = 20
"""Tables that begin a run with more rows than this are larger than a page anyway."""
_USED = """
SELECT max((ctid::text::point)[0]) > 0 OR max((ctid::text::point)[1]) * (avg(pg_column_size(t)) + 28) > 4096 FROM {} t
"""
"""Whether the rows reach beyond half of the first page; a tuple has a header and a pointer of 28 bytes together."""
_STATISTICS = "SELECT relpages, reltuples, relallvisible, oid FROM pg_class WHERE oid = %s::regclass"
_SET_STATISTICS = """
UPDATE pg_class SET relpages = given.pages, reltuples = given.tuples, relallvisible = given.visible
FROM unnest(%s::int[], %s::real[], %s::int[], %s::oid[]) AS given (pages, tuples, visible, oid)
WHERE pg_class.oid = given.oid
"""


class Storage:
    """Looks after the tables that runs write, through the explorer's session and a second one that holds a snapshot."""

    def __init__(self, session: ControlSession) -> None:
        self._session = session
        self._cursor = session.driver.cursor()
        self._tables: dict[str, int] = {}
        self._rewritten = 0
        self._statistics: list[tuple[Any, ...]] = []
        self._runs = 0

    def close(self) -> None:
        """Give up the snapshot, and put the planner's statistics back."""
        if self._tables:
            self._release_snapshot()
        self._set_statistics(self._statistics)

    def add(self, table: str, rows: int, *, rewritten: int) -> None:
        """Look after one more table (a quoted name) of so many rows, of which some are rewritten for every run."""
        self._tables[table] = rows
        self._rewritten += rewritten
        known = self._cursor.execute(_STATISTICS, [table]).fetchall()
        self._statistics += known
        self._forget_statistics(known)
        self._hold_snapshot()

    def _forget_statistics(self, known: Sequence[tuple[Any, ...]]) -> None:
        self._set_statistics([(0, -1, 0, oid) for *_, oid in known])

    def _set_statistics(self, rows: Sequence[tuple[Any, ...]]) -> None:
        if self._session.superuser and rows:
            self._cursor.execute(_SET_STATISTICS, [list(column) for column in zip(*rows, strict=True)])

    def _hold_snapshot(self) -> None:
        """Keep a snapshot open, so that the server does not reuse the places of dead rows as it thinks fit."""
        driver = self._session.snapshot_holder
        if driver.info.transaction_status == TransactionStatus.IDLE:
            driver.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")

    def _release_snapshot(self) -> None:
        self._session.snapshot_holder.execute("ROLLBACK")

    def usage_query(self) -> str:
        """Return the statement that tells how a run has left the tables; empty where nothing needs to be asked."""
        asked = [_USED.format(name) for name, rows in self._tables.items() if rows <= _FEW_ROWS]
        return f"{' UNION ALL '.join(asked)}; " if asked else ""

    def needs_vacuum(self, answers: Iterable[tuple[Any, ...]]) -> bool:
        """Count a run, and return whether to vacuum the tables after it; ``answers`` are the rows of `usage_query`."""
        self._runs += 1
        most = min(_MOST_RUNS, _MOST_DEAD_ROWS / (1 + self._rewritten))
        return self._runs >= most or any(used for (used,) in answers)

    def vacuum(self) -> None:
        """Remove dead rows."""
        self._runs = 0
        self._release_snapshot()
        self._cursor.execute(f"VACUUM {', '.join(self._tables)}")
        self._forget_statistics(self._statistics)
        self._hold_snapshot()
