"""The report as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import date, datetime, time

from django_lockstep.monitor.report import LockReport, Session
from django_lockstep.monitor.trees import trees

SCHEMA_VERSION = 1
"""Incremented when a key is removed or changes its meaning; new keys may be added at any time."""


def as_json(report: LockReport) -> str:
    """Return one line of JSON.

    ``sessions`` holds each session once, by id; ``waits``, ``roots`` and ``advisory_locks`` refer to these ids.
    ``roots``: sessions that wait for no other one, with the number of sessions that wait ``behind`` each.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        "database": report.database,
        "taken_at": report.taken_at,
        "limited": report.limited,
        "sessions": {id_: asdict(session) for id_, session in report.sessions.items()},
        "waits": [asdict(wait) | {"waiter": wait.waiter.id, "blockers": _ids(wait.blockers)} for wait in report.waits],
        "roots": [{"session": node.session.id, "behind": node.behind} for node in trees(report.waits)],
        "advisory_locks": [
            asdict(lock) | {"holders": _ids(lock.holders), "waiters": _ids(lock.waiters)}
            for lock in report.advisory_locks
        ],
    }
    return json.dumps(document, default=_plain)


def _ids(sessions: tuple[Session, ...]) -> list[str]:
    return [session.id for session in sessions]


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)
