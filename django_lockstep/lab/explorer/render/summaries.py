"""Statements in a few words, for timelines and explanations, and text that fits into a column."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Mapping

from rich.cells import cell_len, set_cell_size

from django_lockstep.lab.explorer.effects.statement_text import StatementText, read_parts
from django_lockstep.lab.explorer.results import Run, Step
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import ngettext

_MOST = 6
"""Columns shown of a row."""
_FEW = 2
"""Columns shown of a row in which no actor changes anything."""
_EXISTS = re.compile("SELECT (1|%s) AS ", re.IGNORECASE)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d")


def summarize(step: Step) -> StatementText:
    """Return what the step's statement says; of several parts the first one that writes."""
    return _main_part(step.sql, step.arguments)


@functools.lru_cache(maxsize=8192)
def _main_part(sql: str, arguments: tuple[str, ...]) -> StatementText:
    parts = read_parts(sql, arguments)
    return next((part for part in parts if part.verb != "SELECT"), parts[0])


def is_time(value: str | None) -> bool:
    """Whether the value is a date with a time, which summaries leave out."""
    return value is not None and bool(_TIME.match(value))


def describe_step(step: Step, run: Run | None = None) -> str:
    """Return the step's statement in a few words."""
    return "; ".join(describe_parts(step, run))


def describe_parts(step: Step, run: Run | None = None) -> list[str]:
    """Return each part of the step's statement in a few words: verb, table, rows, lock or new values.

    If a run is given, columns that an UPDATE writes back as they were read are left out.
    """
    unchanged = _unchanged(step, run) if run else frozenset()
    return [_in_short(part, unchanged) for part in read_parts(step.sql, step.arguments)]


def _unchanged(step: Step, run: Run) -> frozenset[str]:
    """Return the columns that the step writes back as its actor last read them; none if these are all."""
    summary = summarize(step)
    if summary.verb != "UPDATE":
        return frozenset()
    earlier = [read for read in run.steps if read.actor == step.actor and read.ended < step.begun]
    for source in reversed(earlier):
        read = summarize(source)
        if read.verb != "SELECT" or summary.table not in read.tables:
            continue
        # Of a joined table the keys are not known.
        keys = summary.keys if read.table == summary.table else {}
        for row in source.values:
            if all(row[name] in keys[name] for name in keys.keys() & row):
                same = {
                    name
                    for name in summary.given & row.keys()
                    if ("NULL" if row[name] is None else row[name]) == summary.sets[name]
                }
                return frozenset(same if same < summary.sets.keys() else ())
    return frozenset()


def _in_short(summary: StatementText, unchanged: frozenset[str]) -> str:
    if not summary.table:
        return f"{summary.verb} {summary.where}".strip()
    rows = [f"{name}={'|'.join(sorted(values))}" for name, values in summary.keys.items()] or [summary.where]
    tight = {
        name: value if name in summary.plain else re.sub(" ([-+*/]) ", r"\1", value)
        for name, value in summary.sets.items()
    }
    shown = {name: value for name, value in tight.items() if name not in unchanged}
    sets = _listed({name: value for name, value in shown.items() if value not in {"NULL", "DEFAULT"}})
    words = [summary.verb, summary.table, " ".join(rows), summary.locking]
    return " ".join(filter(None, words)) + (f": {sets}" if sets else "")


def describe_result(step: Step, run: Run | None = None) -> str:
    """Return the step's result: the error, the values read, or the number of rows."""
    if step.sqlstate is not None:
        return _("error {sqlstate}", sqlstate=step.sqlstate)
    verb = summarize(step).verb
    if verb == "INSERT" and step.rows == 1:
        return ""
    if step.values and verb == "SELECT" and not _EXISTS.match(step.sql):
        rows = (_listed(relevant_columns(row, step, run)) for row in step.values)
        if values := "; ".join(filter(None, rows)):
            return values
    return "" if step.rows is None else ngettext("{number} row", "{number} rows", step.rows)


def relevant_columns(row: Mapping[str, str | None], step: Step, run: Run | None) -> dict[str, str | None]:
    """Return the columns of a row that matter in the run: those that an actor writes or searches by."""
    columns = {name: value for name, value in row.items() if not is_time(value)}
    fixed = {name for name, values in summarize(step).keys.items() if len(values) == 1}
    written = _written(run).get(summarize(step).table, set()) - fixed if run else set()
    return {name: columns[name] for name in columns if name in written} or dict(list(columns.items())[:_FEW])


@functools.lru_cache(maxsize=4)
def _written(run: Run) -> Mapping[str, set[str]]:
    """Return by table the columns that writes to it set or compare."""
    columns: dict[str, set[str]] = {}
    for write in run.steps:
        if (summary := summarize(write)).sets:
            names = summary.sets.keys() - _unchanged(write, run)
            columns.setdefault(summary.table, set()).update(names, summary.keys)
    return columns


def _listed(columns: Mapping[str, str | None]) -> str:
    shown = [f"{name}={'NULL' if value is None else value or repr('')}" for name, value in columns.items()]
    kept = [text for text, value in zip(shown, columns.values(), strict=True) if not is_time(value)]
    return ", ".join(kept[:_MOST]) + ("…" if len(kept) > _MOST else "")


# Text in a fixed-width font: its width, truncated or wrapped to fit, without characters that cannot be shown.

_MISLEADING = {*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", "\ufffe", "\uffff"}
"""Bidirectional controls, with which text could pretend to be another one, and noncharacters."""


def clean(text: str) -> str:
    """Return the text on one line, with a replacement for each character that XML or a terminal cannot show."""
    return "".join(map(_shown, " ".join(text.split())))


def _shown(letter: str) -> str:
    return "\ufffd" if letter in _MISLEADING or unicodedata.category(letter) in {"Cc", "Cs"} else letter


def truncate(text: str, columns: int) -> str:
    """Return the text on one line, ending with an ellipsis if it is wider than ``columns``."""
    text = clean(text)
    return text if cell_len(text) <= columns else set_cell_size(text, columns - 1).rstrip() + "\u2026"


def wrap(text: str, columns: int, *, most: int | None = None) -> list[str]:
    """Return the text broken at spaces into lines of at most ``columns``; the last of ``most`` lines is truncated."""
    lines: list[str] = [""]
    words = clean(text).split(" ")
    for index, word in enumerate(words):
        joined = f"{lines[-1]} {word}".strip()
        if cell_len(joined) <= columns:
            lines[-1] = joined
        elif len(lines) == most:
            lines[-1] = truncate(" ".join([lines[-1], *words[index:]]), columns)
            break
        else:
            lines.append(truncate(word, columns))
    return [line for line in lines if line]
