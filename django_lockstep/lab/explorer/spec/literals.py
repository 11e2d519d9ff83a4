"""Operations as SQL with literals, for specs of isolationtester."""

from __future__ import annotations

import re
from typing import Any

from psycopg import ClientCursor, ProgrammingError

from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.errors import NotWritable

__all__ = ["escape_braces", "literal_sql"]

_IN_SMALL_LETTERS = "set|reset|show|lock|savepoint|release|rollback|start transaction|discard|listen|notify|table"
"""First words of statements that may consist of words only."""
_PROTOCOL = re.compile(
    rf"(?!(?:{_IN_SMALL_LETTERS})\b)[a-z_ ]+|CLOSE|COPY\b.*|FETCH (?:SELECT|WITH|VALUES|TABLE)\b.*", re.DOTALL
)
"""How the hooks name round trips without a statement of their own: FETCH, COPY, transaction blocks of the driver."""
_BY_ITSELF = frozenset({"abort", "begin", "commit", "end", "rollback"})
_SAVEPOINT = re.compile(r'"?(s\d+_x\d+)"?')
_TOKEN = re.compile(
    r"""(?P<dollar>\$(?P<tag>\w*)\$(?P<body>.*?)\$(?P=tag)\$)
      | (?P<escaped>\b[eE]'(?:[^'\\]|\\.|'')*')
      | (?P<plain>'(?:[^']|'')*')
      | (?P<name>"(?:[^"]|"")*")
      | (?P<comment>--[^\n]*|/\*.*?\*/)""",
    re.DOTALL | re.VERBOSE,
)


def literal_sql(operation: Operation, connection: Any, *, savepoints: dict[str, str]) -> str:
    """Return what the operation sent as SQL that needs no parameters; several statements where it sent several.

    ``connection`` is the driver's, whose adapters write the values. ``savepoints`` collects short names for the
    generated ones. Raises `NotWritable` for what was not sent as a statement.
    """
    sql = operation.sql.strip().rstrip(";")
    if _PROTOCOL.fullmatch(sql) and sql not in _BY_ITSELF:
        raise NotWritable(f"{sql!r} went over the wire without a statement of its own (server-side cursor, COPY)")
    sets = operation.params if operation.many else [operation.params]
    try:
        # The driver's own adapters, so that values are written as they were sent.
        texts = [ClientCursor(connection).mogrify(sql, params) for params in sets]
    except ProgrammingError as error:
        raise NotWritable(f"{sql!r} has parameters that cannot be written as literals: {error}") from error
    return "; ".join(_SAVEPOINT.sub(lambda found: _short(found[1], savepoints), text) for text in texts)


def _short(name: str, savepoints: dict[str, str]) -> str:
    return savepoints.setdefault(name, f"sp{len(savepoints) + 1}")


def escape_braces(sql: str) -> str:
    """Return the SQL without closing braces, which end a block of a spec and cannot be escaped there."""
    return _TOKEN.sub(_without_brace, sql) if "}" in sql else sql


def _without_brace(found: re.Match[str]) -> str:
    token = found[0]
    if "}" not in token:
        return token
    if found["comment"]:
        return token.replace("}", ")")
    if found["name"]:
        return "U&" + token.replace("\\", "\\\\").replace("}", "\\007D")
    if found["escaped"]:
        return token.replace("}", "\\x7D")
    text = found["body"].replace("'", "''") if found["dollar"] else token[1:-1]
    return "E'" + text.replace("\\", "\\\\").replace("}", "\\x7D") + "'"
