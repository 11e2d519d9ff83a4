"""Waiting for the results of changes: on PostgreSQL by LISTEN and NOTIFY, elsewhere by polling."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import truncate_name

from django_lockstep.locking.transactions import commits_each_statement

__all__ = ["listening", "notify_decided"]

_AT_ONCE = 100
"""Changes in one notification, whose payload is at most 8,000 bytes."""
_LONGEST_SILENCE = 1.0
"""Seconds after which a listener polls anyway: behind a pooler, LISTEN may have run in another session."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1
"""Seconds between two reads where LISTEN is not possible; doubled each time."""

Pause = Callable[[float], None]


def notify_decided(model: type[Any], pks: list[Any], *, using: str) -> None:
    """Notify waiting sessions that these changes are decided; PostgreSQL delivers it when the transaction commits."""
    if connections[using].vendor != "postgresql":
        return
    with connections[using].cursor() as cursor:
        for start in range(0, len(pks), _AT_ONCE):
            # In the transaction: PostgreSQL sends notifications only after COMMIT, when the results are visible.
            payload = json.dumps([str(pk) for pk in pks[start : start + _AT_ONCE]])
            cursor.execute("SELECT pg_notify(%s, %s)", [_channel(model), payload])


@contextlib.contextmanager
def listening(change: Any, *, using: str) -> Iterator[Pause]:
    """Yield a function that pauses for at most a number of seconds, or until the change may have been decided.

    It listens on the connection of the calling thread. It sleeps in a transaction, where notifications arrive only
    after the end, and on other databases than PostgreSQL.
    """
    connection = connections[using]
    if connection.vendor != "postgresql" or not commits_each_statement(connection):
        yield _sleeper()
        return
    channel = connection.ops.quote_name(_channel(type(change)))
    _execute(connection, f"LISTEN {channel}")
    try:
        yield lambda left: _listen(connection, str(change.pk), min(left, _LONGEST_SILENCE))
    finally:
        # Not on a broken connection, which no longer listens anyway.
        if connection.connection is not None and not connection.connection.closed:
            _execute(connection, f"UNLISTEN {channel}")


def _listen(connection: BaseDatabaseWrapper, pk: str, timeout: float) -> None:
    with connection.wrap_database_errors:
        for notification in connection.connection.notifies(timeout=timeout):
            if pk in json.loads(notification.payload):
                return


def _sleeper() -> Pause:
    pause = _FIRST_PAUSE

    def sleep(left: float) -> None:
        nonlocal pause
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)

    return sleep


def _execute(connection: BaseDatabaseWrapper, sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def _channel(model: type[Any]) -> str:
    """Return the channel of the queue's table; tables with the same truncated name only read more often than needed."""
    return truncate_name(f"queued_{model._meta.db_table}".replace('"', ""), 63)
