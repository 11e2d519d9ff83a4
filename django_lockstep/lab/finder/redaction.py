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
from django_lockstep.lab.explorer.final_state import FinalState

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


def redact(outcome: Outcome, run: Run, *, ends: Iterable[FinalState]) -> tuple[Outcome, Run]:
    """Return both without long strings; differences also name those in ``ends``, the states that other runs left."""
    names = _Names()
    for text in _texts(run, [*ends, outcome.state]):
        names.add(text)
    return _redact_outcome(outcome, names), _redact_run(run, names)


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


def _texts(run: Run, states: Iterable[FinalState]) -> Iterator[str]:
    for step in run.steps:
        yield from step.arguments
        yield from (value for row in step.values for value in row.values() if value is not None)
    yield from run.results.values()
    for state in (run.state, *states):
        if isinstance(state, str):
            yield state
        else:
            yield from (_as_text(value) for rows in state.values() for row in rows for value in row.values())


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else str(value) if isinstance(value, list | dict) else ""


def _redact_outcome(outcome: Outcome, names: _Names) -> Outcome:
    return replace(
        outcome,
        results=_hide_values(outcome.results, names),
        state=_redact_state(outcome.state, names),
        differences=tuple(map(names.hide, outcome.differences)),
        reason=names.hide(outcome.reason),
    )


def _redact_run(run: Run, names: _Names) -> Run:
    return replace(
        run,
        steps=tuple(_redact_step(step, names) for step in run.steps),
        results=_hide_values(run.results, names),
        state=_redact_state(run.state, names),
        differences=tuple(map(names.hide, run.differences)),
        reason=names.hide(run.reason),
        raised={
            name: replace(raised, message=mask_message(names.hide(raised.message)))
            for name, raised in run.raised.items()
        },
    )


def _redact_step(step: Step, names: _Names) -> Step:
    return replace(
        step,
        sql=names.hide_literals(step.sql),
        params=names.hide_written(step.params),
        arguments=tuple(map(names.hide, step.arguments)),
        waited_on=names.hide(step.waited_on),
        values=tuple(
            {name: None if value is None else names.hide(value) for name, value in row.items()} for row in step.values
        ),
    )


def _redact_state(state: FinalState, names: _Names) -> FinalState:
    if isinstance(state, str):
        return names.hide(state)
    return {table: [_redact_row(row, names) for row in rows] for table, rows in state.items()}


def _redact_row(row: Mapping[str, Any], names: _Names) -> dict[str, Any]:
    return {name: names.hide(text) if (text := _as_text(value)) else value for name, value in row.items()}


def _hide_values(texts: Mapping[str, str], names: _Names) -> dict[str, str]:
    return {name: names.hide(text) for name, text in texts.items()}
