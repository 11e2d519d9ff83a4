"""Whether statements have left something behind in a session, which would reach the next run in it."""

from __future__ import annotations

import functools
import re

from psycopg import Connection
from psycopg.pq import ExecStatus

from django_lockstep.lab.explorer.effects.operations import Operation

__all__ = ["SessionState"]

_SETS = re.compile(r"(?:^|;)\s*(?:RE)?SET\s+(?!LOCAL\b|TRANSACTION\b|CONSTRAINTS\b)|\bset_config\b", re.IGNORECASE)
"""Statements that may change the session beyond their transaction."""
_SESSION = rb"""
SELECT concat_ws(';', current_user, session_user, pg_my_temp_schema(),
    (SELECT string_agg(concat_ws('=', name, setting), ';' ORDER BY name) FROM pg_settings
     WHERE source = 'session' AND name NOT IN
           ('deadlock_timeout', 'transaction_deferrable', 'transaction_isolation', 'transaction_read_only')),
    (SELECT count(*) FROM pg_prepared_statements WHERE NOT starts_with(name, '_pg3_')),
    (SELECT count(*) FROM pg_cursors WHERE is_holdable),
    (SELECT string_agg(name, ';') FROM pg_listening_channels() AS listened (name)),
    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
    (SELECT sum(hashtextextended(concat_ws(' ', oid, xmin), 0)) FROM pg_proc WHERE oid >= 16384
     AND NOT pg_is_other_temp_schema(pronamespace)))
"""
"""What statements may leave behind in a session, but for what the explorer and the driver themselves do, and for what
ends with each transaction; last the database's own functions, of which `_UNLISTED_BY_FUNCTIONS` is asked once."""
_SET_UNLISTED = r"(?<!\w)set\s+(session\s+)?\"?\w+\"?\s*\."
_CONFIGURED_UNLISTED = r"(?<!\w)set_config\s*\(\s*(?!'\w+'\s*,)"
"""A setting of the application's own, such as ``shop.till``: the server lists none of these. Or one whose name is not
written there."""
_UNLISTED_BY_FUNCTIONS = rf"""
SELECT count(*) FROM pg_proc WHERE pronamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
AND (prosrc ~* $set${_CONFIGURED_UNLISTED}$set$
     OR regexp_replace(prosrc, $set$'[^']*'$set$, '', 'g') ~* $set${_SET_UNLISTED}$set$)
"""


class SessionState:
    """What the server tells of a session, compared with what it told at `note`.

    Settings, the role, temporary tables, prepared statements, held cursors, channels and session-level locks count.
    """

    def __init__(self, driver: Connection) -> None:
        self._driver = driver
        self._noted = b""
        self._has_set = False
        self._has_set_unlisted = False
        self._functions_set_unlisted: bool | None = None

    def note(self) -> None:
        """Remember the session as it is now, with the explorer's settings."""
        self._noted = self._asked(_SESSION)
        self._functions_set_unlisted = None

    def see(self, operation: Operation) -> None:
        """Note what a statement may set beyond its transaction, by its text."""
        if not _mentions_set(operation.sql):
            return
        self._has_set = self._has_set or bool(_SETS.search(operation.sql))
        self._has_set_unlisted = self._has_set_unlisted or _may_set_unlisted(operation)

    @property
    def is_unchanged(self) -> bool:
        """Whether no statement's text says that it sets something, or nothing is left of that."""
        return not self._has_set or self.is_as_noted()

    def is_as_noted(self) -> bool:
        """Whether the session, which is outside of a transaction, certainly is as it was at `note`."""
        if self._has_set_unlisted or not self._noted or self._asked(_SESSION) != self._noted:
            return False
        if self._functions_set_unlisted is None:
            self._functions_set_unlisted = self._asked(_UNLISTED_BY_FUNCTIONS.encode()) != b"0"
        return not self._functions_set_unlisted

    def _asked(self, query: bytes) -> bytes:
        """Return the query's one value; nothing if the server does not answer."""
        # Not through the driver's methods, which would pass the gate and could begin a transaction.
        result = self._driver.pgconn.exec_(query)
        return (result.get_value(0, 0) or b"") if result.status == ExecStatus.TUPLES_OK else b""


@functools.lru_cache(maxsize=1024)
def _mentions_set(sql: str) -> bool:
    """Whether a statement can set anything; every schedule sends the same few again."""
    return "set" in sql.lower()


def _may_set_unlisted(operation: Operation) -> bool:
    """Whether it may make a setting of the application's own, by its text and parameters."""
    if re.search(_SET_UNLISTED, operation.sql, re.IGNORECASE):
        return True
    found = re.finditer(_CONFIGURED_UNLISTED + r"(%s|%\((\w+)\)s)?", operation.sql, re.IGNORECASE)
    names = (_parameter(operation, each[2], place=operation.sql[: each.start()].count("%s")) for each in found)
    return any(not isinstance(name, str) or "." in name for name in names)


def _parameter(operation: Operation, name: str | None, *, place: int) -> object:
    given = operation.params
    if isinstance(given, dict):
        return given.get(name)
    return given[place] if isinstance(given, list | tuple) and place < len(given) else None
