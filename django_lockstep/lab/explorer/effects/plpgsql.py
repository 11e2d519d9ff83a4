"""Reads PL/pgSQL sources of trigger functions: whether they do more than change or refuse the row."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["EVERY_COLUMN", "Body", "called_names", "read_body"]

EVERY_COLUMN = "*"
"""Stands for all columns of a row."""

_TOKEN = re.compile(r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/""", re.DOTALL | re.VERBOSE)
_NO_SQL = re.compile(r"\bIS\s+(?:NOT\s+)?DISTINCT\s+FROM\b|\bEXTRACT\s*\(\s*\w+\s+FROM\b", re.IGNORECASE)
"""FROM that names no table."""
_SQL = re.compile(
    r"(?<![.\w])(alter|analyze|call|checkpoint|close|cluster|comment|commit|copy|create|deallocate|delete|discard|do|"
    r"drop|execute|explain|fetch|from|grant|import|insert|into|listen|load|lock|merge|move|notify|open|perform|prepare|"
    r"reassign|refresh|reindex|release|reset|revoke|rollback|savepoint|security|select|set|show|table|truncate|"
    r"unlisten|update|vacuum|values|with)\b",
    re.IGNORECASE,
)
"""Words of SQL commands and queries; FROM, because PL/pgSQL takes ``count(*) FROM t`` as an expression, too."""
_CALL = re.compile(r'(?:"([^"]+)"|([a-z_][\w$]*))\s*\(', re.IGNORECASE)
_ASSIGNED = re.compile(r'\bNEW\s*\.\s*(?:"([^"]+)"|(\w+))\s*(?:\[[^\]]*\]\s*)?:?=', re.IGNORECASE)
_WHOLE_ROW = re.compile(r"\bNEW\s*:?=|\bRETURN\s+(?!(?:NEW|OLD|NULL)\s*;)\S", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What a trigger function does."""

    does: str = ""
    """What it does beyond the row, such as ``calls audit()``; empty if nothing."""
    assigned: frozenset[str] = frozenset()
    """Columns of the row that it may set."""


def read_body(source: str, *, harmful: Collection[str]) -> Body:
    """Return what the source does; ``harmful`` are the names of functions that may do anything."""
    text = _code(source)
    if "\\" in source or re.search(r"\$\w*\$", source):
        return Body(does="holds strings that are not understood")
    if found := _SQL.search(text):
        return Body(does=f"runs SQL of its own ({found[1].upper()})")
    if others := sorted(called_names(source) & set(harmful)):
        return Body(does=f"calls {others[0]}()")
    if _WHOLE_ROW.search(text):
        return Body(assigned=frozenset({EVERY_COLUMN}))
    return Body(assigned=frozenset(quoted or bare.lower() for quoted, bare in _ASSIGNED.findall(text)))


def called_names(source: str) -> set[str]:
    """Return all words before parentheses: functions, and keywords."""
    return {quoted or bare.lower() for quoted, bare in _CALL.findall(_code(source))}


def _code(source: str) -> str:
    return _NO_SQL.sub("", _TOKEN.sub(_without_text, source))


def _without_text(found: re.Match[str]) -> str:
    """Empty strings and comments, and keep quoted names."""
    token = found[0]
    return token if token.startswith('"') else "''" if token.startswith("'") else " "
