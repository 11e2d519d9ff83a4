"""Collects the report from the server, in one short transaction that is rolled back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.db import DEFAULT_DB_ALIAS, NotSupportedError, connections

from django_lockstep.monitor.locked import PrimaryKeys, tables_of
from django_lockstep.monitor.queries import ADVISORY, LIMITS, SESSIONS, WAITING, ReportRow, fetch, read_only_cursor
from django_lockstep.monitor.report import AdvisoryLock, LockReport, Session, Wait

_KINDS = {"transactionid": "row", "tuple": "row", "relation": "table", "virtualxid": "transaction"}
_ROW_MODES = {
    "AccessShareLock": "FOR KEY SHARE",
    "RowShareLock": "FOR SHARE",
    "ExclusiveLock": "FOR NO KEY UPDATE",
    "AccessExclusiveLock": "FOR UPDATE",
}
"""The row lock that a session requests if it takes a tuple lock in this mode."""


def waits(using: str = DEFAULT_DB_ALIAS) -> list[Wait]:
    """Return the waits in the database, the longest first; see `lock_report`."""
    return list(lock_report(using).waits)


def lock_report(using: str = DEFAULT_DB_ALIAS) -> LockReport:
    """Return the database's current locks and waits.

    Takes no lock that could block another session for long, and waits for none: what is locked itself is reported as
    unknown. Inside a transaction it uses a savepoint. A role that is not a member of pg_read_all_stats gets less, not
    an error. Raises `django.db.NotSupportedError` if the database is not PostgreSQL.
    """
    if connections[using].vendor != "postgresql":
        raise NotSupportedError(f"Database {using!r} is not PostgreSQL, so its waits cannot be reported.")
    with read_only_cursor(using) as cursor:
        # The limits first: they are for the queries that follow.
        (now,) = fetch(cursor, LIMITS)
        waiting, advisory = fetch(cursor, WAITING), fetch(cursor, ADVISORY)
        # All sessions in one query, right after the locks: one by one they would be seen at different times.
        mentioned = [pid for row in waiting for pid in (row["session"], *row["blockers"])]
        sessions = _read_sessions(cursor, mentioned + [row["pid"] for row in advisory])
        tables = tables_of(cursor, (row["relation"] for row in waiting if row["relation"]), using=using)
        keys = PrimaryKeys(waiting, tables, using=using)
        return LockReport(
            database=now["database"],
            taken_at=now["taken_at"],
            waits=tuple(_wait(row, sessions, tables, keys) for row in waiting),
            advisory_locks=tuple(_advisory_locks(advisory, sessions)),
        )


def _read_sessions(cursor: Any, pids: Iterable[int | None]) -> dict[int | None, Session]:
    """Return the sessions with these process ids; of one that has ended in the meantime only its pid is known.

    0 and None stand for prepared transactions, as in PostgreSQL's views: those have no process.
    """
    sessions = {pid: Session(pid=pid) if pid else Session(state="prepared") for pid in pids}
    rows = fetch(cursor, SESSIONS, [pid for pid in sessions if pid])
    return sessions | {row["pid"]: Session(**row) for row in rows}


def _wait(row: ReportRow, sessions: dict[int | None, Session], tables: dict[int, ReportRow], keys: PrimaryKeys) -> Wait:
    table, kind = tables.get(row["relation"], {}), _KINDS.get(str(row["locktype"]), str(row["locktype"]))
    return Wait(
        waiter=sessions[row["session"]],
        blockers=tuple(sessions[pid] for pid in dict.fromkeys(row["blockers"])),
        kind=kind,
        lock=row["lock"],
        mode=_mode_in_sql(row["mode"], row=kind == "row"),
        seconds=row["seconds"],
        table=table.get("name"),
        model=table.get("model"),
        key=_advisory_key(row) if row["locktype"] == "advisory" else None,
        **(keys.attributes_of(row) if kind == "row" else {}),
    )


def _advisory_locks(rows: list[ReportRow], sessions: dict[int | None, Session]) -> Iterator[AdvisoryLock]:
    for _, group in groupby(rows, key=itemgetter("lock")):
        requests = list(group)
        grants = [row for row in requests if row["granted"]]
        yield AdvisoryLock(
            key=_advisory_key(requests[0]),
            mode="EXCLUSIVE" if any(row["mode"] == "ExclusiveLock" for row in grants) else "SHARE",
            holders=_each_once(sessions[row["pid"]] for row in grants),
            waiters=_each_once(sessions[row["pid"]] for row in requests if not row["granted"]),
        )


def _each_once(sessions: Iterator[Session]) -> tuple[Session, ...]:
    return tuple({session.id: session for session in sessions}.values())


def _mode_in_sql(mode: str | None, *, row: bool = False) -> str | None:
    """Return the mode of a lock, or of a row's tuple lock, as SQL spells it."""
    if mode is None or row:
        return _ROW_MODES.get(mode or "")
    return re.sub(r"(?<!^)(?=[A-Z])", " ", mode.removesuffix("Lock")).upper()


def _advisory_key(row: dict[str, Any]) -> int | tuple[int, int]:
    """Return the key from its parts in pg_locks: a bigint in two halves, or (``objsubid`` 2) two integers."""
    if row["objsubid"] == 2:
        return _signed(row["classid"], bits=32), _signed(row["objid"], bits=32)
    return _signed(row["classid"] << 32 | row["objid"], bits=64)


def _signed(number: int, *, bits: int) -> int:
    return number - (1 << bits) if number >> (bits - 1) else number
