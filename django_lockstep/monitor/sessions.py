"""Looks up sessions, and ends them: server processes, and prepared transactions, which have no process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

from django.db import connections

from django_lockstep.monitor.modes import CONFLICTS
from django_lockstep.monitor.queries import PREPARED, SESSIONS, ReportRow, fetch
from django_lockstep.monitor.report import Session

Ending = Literal["cancel", "terminate"]

_FUNCTIONS: dict[Ending, str] = {"cancel": "pg_cancel_backend", "terminate": "pg_terminate_backend"}
# By its start as well: the server gives the pid of a session that has ended to a new one.
_END = """
SELECT {function}(pid) FROM pg_stat_activity
WHERE pid = %s AND backend_start = %s AND datname = current_database() AND pid <> pg_backend_pid()
"""


class Sessions:
    """The sessions with these process ids; 0 and None stand for prepared transactions, as in PostgreSQL's views."""

    def __init__(self, cursor: Any, pids: Iterable[int | None]) -> None:
        distinct = set(pids)
        rows = fetch(cursor, SESSIONS, [pid for pid in distinct if pid])
        self._sessions = {row["pid"]: Session(**row) for row in rows}
        self._prepared: dict[str, list[tuple[str, Session]]] = defaultdict(list)
        for row in fetch(cursor, PREPARED) if distinct & {0, None} else ():
            self._prepared[row.pop("lock")].append((row.pop("mode"), Session(state="prepared", **row)))

    def session(self, pid: int) -> Session:
        """Return the session; only its pid is known if it has ended in the meantime."""
        return self._sessions.get(pid) or Session(pid=pid)

    def blockers(self, row: ReportRow) -> tuple[Session, ...]:
        """Return the sessions that the waiter of this row waits for, each once."""
        pids = dict.fromkeys(row["blockers"])
        # pg_blocking_pids() names a prepared transaction 0, so that it is found by what it holds.
        prepared = self._with(row["lock"], CONFLICTS.get(row["lock_mode"], set())) or [Session(state="prepared")]
        return (*(self.session(pid) for pid in pids if pid), *(prepared if 0 in pids else ()))

    def holders(self, row: ReportRow) -> Iterable[Session]:
        """Return the sessions that hold the lock of this row of pg_locks."""
        return [self.session(row["pid"])] if row["pid"] else self._with(row["lock"], {row["mode"]})

    def _with(self, lock: str, modes: set[str]) -> list[Session]:
        return [session for mode, session in self._prepared[lock] if mode in modes]


def end_session(pid: int, started: datetime, *, ending: Ending, using: str) -> bool:
    """Cancel the current statement of the session that has this pid since then, or terminate the session.

    A cancelled statement fails with SQLSTATE 57014, and its transaction with it unless a savepoint is before it; a
    terminated session loses its transaction and its connection. Returns False if there is no such session in the
    database any more. Raises `django.db.ProgrammingError` if the role may not: that takes the same role, or
    ``pg_signal_backend``; a superuser's sessions are a superuser's to end.
    """
    with connections[using].cursor() as cursor:
        cursor.execute(_END.format(function=_FUNCTIONS[ending]), [pid, started])
        row = cursor.fetchone()
    return row is not None and bool(row[0])
