"""What goes to the server past the driver's methods: what one of its generators is about to send, and questions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import GeneratorType
from typing import Any

from psycopg import Connection, Transaction
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.sql import Composable

__all__ = ["one_value", "sent_by"]

_FIXED = {"_commit_gen": "COMMIT", "_rollback_gen": "ROLLBACK", "_close_gen": "CLOSE"}
_WITH_TEXT = {
    "_execute_gen": "query",
    "_declare_gen": "query",
    "_stream_send_gen": "query",
    "_start_copy_gen": "statement",
}
"""The argument that holds the statement."""
_DECLARED = re.compile(rb"\s*DECLARE .*? CURSOR (?:WITH HOLD )?FOR (.*)", re.IGNORECASE | re.DOTALL)


def sent_by(generator: GeneratorType[Any, Any, Any], driver: Connection[Any]) -> tuple[str, Any]:
    """Return the statement and its parameters; the generator's name if its arguments do not contain a statement."""
    name = generator.gi_code.co_name
    given = generator.gi_frame.f_locals if generator.gi_frame is not None else {}
    if name in _WITH_TEXT:
        return _text(given[_WITH_TEXT[name]], driver), given.get("params")
    text = _FIXED.get(name) or _of_block(name, given, driver) or _of_cursor(name, given)
    return text or name.strip("_").removesuffix("_gen").replace("_", " "), None


def _text(query: Any, driver: Connection[Any]) -> str:
    if isinstance(query, Composable):
        return query.as_string(driver)
    return query.decode() if isinstance(query, bytes) else str(query)


def _of_block(name: str, given: Mapping[str, Any], driver: Connection[Any]) -> str | None:
    """Return what the start or end of ``connection.transaction()`` sends."""
    block = given.get("self")
    if not isinstance(block, Transaction):
        return None
    named = block.savepoint_name or ""
    if name == "_enter_gen":
        idle = driver.pgconn.transaction_status == TransactionStatus.IDLE
        return "BEGIN" if idle else "SAVEPOINT"
    if named and not named.startswith("_pg3_"):
        return None  # a named block may be a whole transaction or a savepoint
    if given.get("exc_val") is None and not block.force_rollback:
        return "RELEASE SAVEPOINT" if named else "COMMIT"
    return "ROLLBACK TO SAVEPOINT" if named else "ROLLBACK"


def _of_cursor(name: str, given: Mapping[str, Any]) -> str | None:
    """Return a FETCH with the query of the server-side cursor, which may lock the rows."""
    query = getattr(getattr(given.get("self"), "_query", None), "query", b"")
    declared = _DECLARED.match(query) if name == "_fetch_gen" else None
    return f"FETCH {declared[1].decode(errors='replace')}" if declared else None


def one_value(driver: Connection[Any], query: str) -> str | None:
    """Return the one value of a query; None if it is NULL, or if the server refuses the query."""
    # Not through the driver's methods, which would pass the gate and could begin a transaction.
    result = driver.pgconn.exec_(query.encode())
    value = result.get_value(0, 0) if result.status == ExecStatus.TUPLES_OK else None
    return None if value is None else value.decode()
