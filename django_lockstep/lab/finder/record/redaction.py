"""Redaction: long strings in what a confirmed race shows are replaced by their type, unless values are asked for.

Numbers, keys, times and short strings stay, because a timeline without them says nothing; the explorer has masked the
columns whose names say that they hold secrets. Equal strings get the same number, so that what was read can still be
recognised in what is written. Messages of errors are computed from values in whatever way: of them all numbers and all
that stands in quotes are masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from django_lockstep.lab.explorer import Outcome, Run, Step
from django_lockstep.lab.explorer.results import Raised
from django_lockstep.lab.explorer.tables.final_state import FinalState
from django_lockstep.lab.wording import Sentence

_LONG = 20
"""Characters that a string may have and still be shown."""
_OPEN = re.compile(
    r"[-+]?[\d.]+(?:[eE][-+]?\d+)?"  # a number
    r"|[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}"  # a UUID
    r"|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[\d.:+Z-]*"  # a time
)
_ANSWER = re.compile(r"status \d{3}(?: to |(?: [A-Z]\w*)*$)")
"""What is no value in a request's answer: all but the address of a redirect."""
_LITERAL = re.compile(r"'((?:[^']|'')*)'")
"""A string in SQL."""
_WRITTEN = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
"""A string as Python writes it."""
_IN_MESSAGE = re.compile(
    # What kind of thing has the name, or which long string it was, is no secret.
    r'((?:column|constraint|index|relation|table) "[^"]*"|str#\d+)'
    r"|(?<!\w)'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|=\([^)]*\)|\d[\d.,:-]*\d|\d"
)


def redact(outcome: Outcome, run: Run, *, ends: Iterable[tuple[FinalState, Mapping[str, str]]]) -> tuple[Outcome, Run]:
    """Return both without long strings; ``ends`` are the states and results of other runs, which differences name."""
    names = _Names()
    # Of rows: tables and columns keep their names.
    names.add_all([[step.arguments, [list(row.values()) for row in step.values]] for step in run.steps])
    for state, results in [(run.state, run.results), (outcome.state, {}), *ends]:
        rows = () if isinstance(state, str) else [row for table in state.values() for row in table]
        names.add_all([state if isinstance(state, str) else "", [list(row.values()) for row in rows], results])
    for step in run.steps:
        names.add_all(_LITERAL.findall(step.sql))
        names.add_all(_WRITTEN.findall(step.params))
    return _hidden(outcome, names), _hidden(run, names)


def mask_message(message: str) -> str:
    """Return the message of any error without numbers, and without what stands in quotes."""
    return _IN_MESSAGE.sub(lambda match: match[1] or ("#" if match[0][0].isdigit() else "'...'"), message)


def hide_strings(message: str) -> str:
    """Return a message of this library without the long strings that stand in quotes."""
    names = _Names()
    names.add_all(_WRITTEN.findall(message))
    return names.hide(message)


class _Names:
    """What stands for each long string."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def add_all(self, value: Any) -> None:
        """Add the strings in a value, which may be JSON; of that the keys, too."""
        if isinstance(value, str):
            value = _ANSWER.sub("", value, count=1) if value.startswith("status ") else value
            if len(value) > _LONG and not _OPEN.fullmatch(value):
                self._names.setdefault(value, f"str#{len(self._names) + 1}")
        elif isinstance(value, Mapping | list | tuple):
            for item in value.items() if isinstance(value, Mapping) else value:
                self.add_all(item)

    def hide(self, text: str) -> str:
        """Return the text with a name for each known string in it, as it is or as Python writes it."""
        if isinstance(text, Sentence):
            return text.with_values(self.hide)
        # Longer ones first: a string may contain another one.
        for value in sorted(self._names, key=len, reverse=True):
            for written in (repr(value)[1:-1], value):
                text = text.replace(written, self._names[value])
        return text


def _hidden(value: Any, names: _Names) -> Any:
    """Return data of whatever classes with each string hidden."""
    if isinstance(value, str):
        return names.hide(value)
    if is_dataclass(value) and not isinstance(value, type):
        hidden = {field.name: _hidden(getattr(value, field.name), names) for field in fields(value)}
        if isinstance(value, Step):  # tables, columns and files keep their names
            hidden["sql"] = _LITERAL.sub(lambda match: names.hide(match[0]), value.sql)
            hidden["source"] = value.source
        if isinstance(value, Raised):
            hidden["message"] = mask_message(hidden["message"])
        return replace(value, **hidden)
    if isinstance(value, Mapping):
        return {_hidden(key, names): _hidden(item, names) for key, item in value.items()}
    return type(value)(_hidden(item, names) for item in value) if isinstance(value, list | tuple) else value
