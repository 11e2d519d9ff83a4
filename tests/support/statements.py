"""Every statement that a piece of code sends to PostgreSQL, with the functions that the server runs for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

_FUNCTIONS = """
    SELECT prosrc, prorettype = 'trigger'::regtype, lanname = 'plpgsql'
    FROM pg_proc JOIN pg_language ON pg_language.oid = prolang WHERE pg_proc.oid = ANY (%s)
"""


@dataclass
class Recording:
    """What was sent and run."""

    texts: list[str] = field(default_factory=list)
    """The statements, then the bodies of the functions."""
    in_transaction: bool = False
    """Whether one of the statements was sent inside of a transaction."""
    runs_trigger: bool = False
    runs_plpgsql: bool = False
    """Whether PL/pgSQL ran, as a trigger or called by a statement."""

    def note(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        self.texts.append(str(sql))
        self.in_transaction |= connection.in_atomic_block
        return execute(sql, params, many, context)


@contextmanager
def recorded() -> Iterator[Recording]:
    """Record the block on the test's connection. Needs PostgreSQL 15, and to be a superuser there."""
    recording = Recording()
    _send("SET track_functions = 'all'")
    try:
        before = _calls()
        with connection.execute_wrapper(recording.note):
            yield recording
        called = [function for function, calls in _calls().items() if calls != before.get(function)]
    finally:
        _send("RESET track_functions")
    for body, is_trigger, is_plpgsql in _send(_FUNCTIONS, called):
        recording.texts.append(body)
        recording.runs_trigger |= is_trigger
        recording.runs_plpgsql |= is_plpgsql


def _calls() -> dict[int, int]:
    _send("SELECT pg_stat_force_next_flush()")
    return dict(_send("SELECT funcid, calls FROM pg_stat_user_functions"))


def _send(sql: str, *params: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params or None)
        return cursor.fetchall() if cursor.description else []
