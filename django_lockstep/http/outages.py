"""Database errors that do not depend on the request, which may succeed later."""

from __future__ import annotations

from django.db import Error, InterfaceError, OperationalError

from django_lockstep.errors import sqlstate_of

__all__ = ["is_outage"]

_CLASSES = ("08", "53", "57P")
"""Connection exceptions, insufficient resources (53300: too many connections), shutdown and crash recovery."""
_STATES = frozenset({"57014", "25P03", "25P04"})
"""``statement_timeout``, ``idle_in_transaction_session_timeout`` and ``transaction_timeout``."""
_MYSQL = frozenset({0, 1040, 1053, 1927, 1969, 2002, 2003, 2006, 2013, 3024})
"""The same for MySQL and MariaDB, whose drivers have no SQLSTATE; 0 is a closed connection."""


def is_outage(error: Error) -> bool:
    """Whether the database could not be reached, had no connection left, or exceeded a time limit.

    The driver raises errors without a code without a response from the server: a connection that failed or was lost, or
    an exhausted pool.
    """
    state = sqlstate_of(error)
    if state is not None:
        return state in _STATES or state.startswith(_CLASSES)
    if not isinstance(error, OperationalError | InterfaceError) or hasattr(error.__cause__, "sqlite_errorcode"):
        return False
    code = error.args[0] if error.args else None
    return code in _MYSQL if isinstance(code, int) else True
