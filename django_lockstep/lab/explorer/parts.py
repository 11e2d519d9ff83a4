"""Splits a WITH statement into its parts, each of which is a statement."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Part", "closing_parenthesis", "split_parts"]

_HEAD = re.compile(
    r'\s*(?:"([^"]+)"|([a-z_][a-z0-9_]*))\s*(\([^()]*\)\s*)?\bAS\s*(?:(?:NOT\s+)?MATERIALIZED\s*)?\(', re.IGNORECASE
)
_BRACKET = re.compile(r'"[^"]*"|[()]')


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a WITH statement."""

    name: str
    """Its name in later parts; empty for the last part, the statement itself."""
    text: str
    """Its SQL."""
    start: int = 0
    """How many parameters belong to the parts before it."""
    renamed: bool = False
    """Whether its columns are renamed."""


def split_parts(text: str) -> list[Part]:
    """Return the parts of a statement without strings; one part where it has no WITH that is understood."""
    parts: list[Part] = []
    place = len("WITH")
    while head := _HEAD.match(text, place):
        end = closing_parenthesis(text, head.end())
        name = head[1] or head[2].lower()
        parts.append(_part(text, head.end(), end, name=name, renamed=head[3] is not None))
        place = end + 1
        if not text[place:].lstrip().startswith(","):
            return [*parts, _part(text, place, len(text))]
        place = text.index(",", place) + 1
    return [Part(name="", text=text)]


def _part(text: str, start: int, end: int, *, name: str = "", renamed: bool = False) -> Part:
    return Part(name=name, text=text[start:end].strip(), start=text[:start].count("%s"), renamed=renamed)


def closing_parenthesis(text: str, start: int) -> int:
    """Return the index of the parenthesis that closes the one open at ``start``; the text's length without one."""
    depth = 1
    for bracket in _BRACKET.finditer(text, start):
        depth += {"(": 1, ")": -1}.get(bracket[0], 0)
        if depth == 0:
            return bracket.start()
    return len(text)
