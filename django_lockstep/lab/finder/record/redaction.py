"""Redaction: long strings in what a confirmed race shows are replaced by their type, unless values are asked for.

Numbers, keys, times and short strings stay, because a timeline without them says nothing; the explorer has masked the
columns whose names say that they hold secrets. Equal strings get the same number, so that what was read can still be
recognised in what is written. Messages of errors are computed from values in whatever way: of them all numbers and all
that stands in quotes are masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from django_lockstep.lab.explorer import Outcome, Run, Step
from django_lockstep.lab.explorer.results import Raised
from django_lockstep.lab.explorer.tables.final_state import FinalState

__all__ = ["hide_strings", "mask_message", "redact"]

_LONG = 20
"""Characters that a string may have and still be shown."""
_OPEN = re.compile(
    r"[-+]?[\d.]+(?:[eE][-+]?\d+)?"  # a number
    r"|[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}"  # a UUID
    r"|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[\d.:+Z-]*"  # a time
)
_LITERAL = re.compile(r"'((?:[^']|'')*)'")
"""A string in SQL."""
_WRITTEN = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
"""A string as Python writes it."""
_IN_MESSAGE = re.compile(
    # What kind of thing has the name, or which long string it was, is no secret.
    r'((?:column|constraint|index|relation|table) "[^"]*"|str#\d+)'
    r"|(?<!\w)'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|=\([^)]*\)|\d[\d.,:-]*\d|\d"
)


_SHOWN = ("steps", "results", "state", "differences", "reason", "raised")
"""What a run and an outcome show of values."""


def redact(outcome: Outcome, run: Run, *, ends: Iterable[FinalState]) -> tuple[Outcome, Run]:
    """Return both without long strings; differences also name those in ``ends``, the states that other runs left."""
    names = _Names()
    states = [state for state in (run.state, *ends, outcome.state) if not isinstance(state, str)]
    rows = [row for step in run.steps for row in step.values]
    rows += [row for state in states for table in state.values() for row in table]
    arguments = [step.arguments for step in run.steps]
    texts = [state for state in (run.state, *ends) if isinstance(state, str)]
    for text in _strings([arguments, [list(row.values()) for row in rows], list(run.results.values()), texts]):
        names.add(text)
    return _hidden(outcome, names), _hidden(run, names)


def mask_message(message: str) -> str:
    """Return the message of any error without numbers, and without what stands in quotes."""
    return _IN_MESSAGE.sub(lambda found: found[1] or ("#" if found[0][0].isdigit() else "'...'"), message)


def hide_strings(message: str) -> str:
    """Return a message of this library without the long strings that stand in quotes."""
    return _Names().hide_written(message)


class _Names:
    """What stands for each long string."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def add(self, text: str) -> None:
        if len(text) > _LONG and not _OPEN.fullmatch(text):
            self._names.setdefault(text, f"str#{len(self._names) + 1}")

    def hide(self, text: str) -> str:
        """Return the text with a name for each known string in it, as it is or as Python writes it."""
        # Longer ones first: a string may contain another one.
        for value in sorted(self._names, key=len, reverse=True):
            for written in (repr(value)[1:-1], value):
                text = text.replace(written, self._names[value])
        return text

    def hide_literals(self, sql: str) -> str:
        """Return a statement without long strings in it; tables and columns keep their names."""
        return _LITERAL.sub(lambda found: f"'{self._hide_new(found[1])}'", sql)

    def hide_written(self, text: str) -> str:
        """Return parameters as Python writes them without long strings, known or not."""
        return _WRITTEN.sub(lambda found: f"'{self._hide_new(found[1] or found[2] or '')}'", self.hide(text))

    def _hide_new(self, text: str) -> str:
        self.add(text)
        return self.hide(text)


def _strings(value: Any) -> Iterator[str]:
    """Yield the strings in a value, which may be JSON; of that the keys, too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _strings(list(value.items()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _hidden(value: Any, names: _Names) -> Any:
    """Return data of whatever classes with each string hidden."""
    if isinstance(value, str):
        return names.hide(value)
    if isinstance(value, Step):
        hidden = {name: _hidden(getattr(value, name), names) for name in ("arguments", "waited_on", "values")}
        sql, params = names.hide_literals(value.sql), names.hide_written(value.params)
        return replace(value, sql=sql, params=params, **hidden)
    if isinstance(value, Raised):
        return replace(value, message=mask_message(names.hide(value.message)))
    if isinstance(value, Outcome | Run):
        return replace(value, **{name: _hidden(getattr(value, name), names) for name in _SHOWN if hasattr(value, name)})
    if isinstance(value, Mapping):
        return {_hidden(key, names): _hidden(item, names) for key, item in value.items()}
    return type(value)(_hidden(item, names) for item in value) if isinstance(value, list | tuple) else value
