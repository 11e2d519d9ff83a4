"""Looks up sessions, and ends them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

from django.db import connections

from django_lockstep.monitor.queries import SESSIONS, fetch
from django_lockstep.monitor.report import Session

Ending = Literal["cancel", "terminate"]

_FUNCTIONS: dict[Ending, str] = {"cancel": "pg_cancel_backend", "terminate": "pg_terminate_backend"}
# By its start as well: the server gives the pid of a session that has ended to a new one.
_END = """
SELECT {function}(pid) FROM pg_stat_activity
WHERE pid = %s AND backend_start = %s AND datname = current_database() AND pid <> pg_backend_pid()
"""


def read_sessions(cursor: Any, pids: Iterable[int | None]) -> dict[int | None, Session]:
    """Return the sessions with these process ids; of one that has ended in the meantime only its pid is known.

    0 and None stand for prepared transactions, as in PostgreSQL's views: those have no process.
    """
    sessions = {pid: Session(pid=pid) if pid else Session(state="prepared") for pid in pids}
    rows = fetch(cursor, SESSIONS, [pid for pid in sessions if pid])
    return sessions | {row["pid"]: Session(**row) for row in rows}


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
