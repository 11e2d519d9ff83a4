"""Summaries of statements for people: verb, table, rows, and what is set.

What is not understood stays empty. Summaries are for timelines and explanations only; which steps depend on each other
is decided by `django_lockstep.lab.explorer.sql`.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django_lockstep.lab.explorer.queries import Query, comparison, exp, identifier, parameter, read_text, unwrap
from django_lockstep.lab.explorer.results import Run, Step

__all__ = [
    "StatementSummary",
    "columns_of",
    "describe_parts",
    "describe_result",
    "describe_step",
    "is_time",
    "relevant_columns",
    "summarize",
]

_MOST = 6
"""Columns shown of a row."""
_FEW = 2
"""Columns shown of a row in which no actor changes anything."""
_QUOTED = re.compile(r'"\w+"\.(?=")|"')
_MARK = re.compile("\ue000(\\d+)\ue001")
"""Stands for a parameter in texts that are rendered once for a statement."""
_EXISTS = re.compile("SELECT (1|%s) AS ", re.IGNORECASE)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementSummary:
    """One statement with its parameters filled in."""

    verb: str
    """SELECT, INSERT, UPDATE, DELETE; for others the first word."""
    table: str = ""
    """The first table that it names."""
    where: str = ""
    """The text of its WHERE clause; of a statement without a table all after the verb."""
    keys: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The values that WHERE compares columns with."""
    sets: Mapping[str, str] = field(default_factory=dict)
    """What columns are set to: a value, or an expression."""
    plain: frozenset[str] = frozenset()
    """Columns that are set to a parameter."""
    locking: str = ""
    """The row lock that a SELECT asks for, such as ``FOR UPDATE``."""

    def may_touch(self, other: StatementSummary) -> bool:
        """Whether both may be about the same row, as far as their texts tell."""
        return self.table == other.table and all(self.keys[name] & other.keys[name] for name in self._fixed(other))

    def same_row(self, other: StatementSummary) -> bool:
        """Whether both compare a column with the same value, and none with different values."""
        return bool(self._fixed(other)) and self.may_touch(other)

    def _fixed(self, other: StatementSummary) -> set[str]:
        """Return the columns that both compare and neither sets, as a write with a version guard does."""
        return (self.keys.keys() & other.keys.keys()) - self.sets.keys() - other.sets.keys()


@functools.lru_cache(maxsize=4096)
def _summarize(sql: str, arguments: tuple[str, ...]) -> tuple[StatementSummary, ...]:
    """Return the summary of a statement; of a WITH statement, of each part that is about a table."""
    return tuple(
        replace(
            marked,
            where=_filled(marked.where, arguments),
            keys={name: frozenset(_filled(value, arguments) for value in keys) for name, keys in marked.keys.items()},
            sets={name: _filled(value, arguments, empty="") for name, value in marked.sets.items()},
        )
        for marked in _summarize_text(sql)
    )


@functools.lru_cache(maxsize=4096)
def _summarize_text(sql: str) -> tuple[StatementSummary, ...]:
    """Return the summaries with marks for parameters."""
    read = read_text(sql)
    parts = (read.parts or (read.whole,)) if read else ()
    numbers = itertools.count()
    marked = re.sub("%s|%%", lambda found: f"\ue000{next(numbers)}\ue001" if found[0] == "%s" else "%", sql)
    verb, _, rest = _QUOTED.sub("", marked).partition(" ")
    other = StatementSummary(verb=verb.upper(), where=rest)
    return tuple(_summarize_query(query) for query in parts if query.verb and query.tables) or (other,)


def _summarize_query(query: Query) -> StatementSummary:
    given = query.inserted if query.verb == "INSERT" else query.assigned
    sets = {name: _text(value, query) for name, value in given if name}
    return StatementSummary(
        verb=query.verb,
        table=query.tables[0],
        where=_text(query.where, query),
        keys=dict(_keys(query)),
        sets=sets,
        plain=frozenset(name for name, text in sets.items() if _MARK.fullmatch(text)),
        locking=" ".join(_text(lock, query) for lock in query.tree.args.get("locks") or ()),
    )


def _keys(query: Query) -> Iterator[tuple[str, frozenset[str]]]:
    if query.where is None or query.where.find(exp.Or, exp.Not, exp.Select, exp.Case):
        return  # the whole condition is shown
    for column, values in query.comparisons:
        plain = all(isinstance(unwrap(value), exp.Placeholder | exp.Literal | exp.Neg) for value in values)
        if plain and query.table_of(column) == query.tables[0]:
            yield identifier(column), frozenset(_text(value, query) for value in values)


def _text(node: Any, query: Query) -> str:
    """Return the SQL of a node, with marks for parameters, without the casts and parentheses around it."""

    def shorten(node: Any) -> Any:
        number = parameter(node)
        if number is not None:
            return exp.Var(this=_mark(number))
        if isinstance(node, exp.Column) and query.table_of(node) == query.tables[0]:
            return exp.Var(this=node.name)
        return exp.Var(this=node.name) if isinstance(node, exp.Identifier) else node

    if node is None:
        return ""
    return str(unwrap(node).transform(shorten).sql(dialect="postgres", normalize_functions=False)).strip()


def summarize(step: Step) -> StatementSummary:
    """Return the summary of the step's statement; of several parts the first one that writes."""
    summary = _summarize(step.sql, step.arguments)
    return next((part for part in summary if part.verb != "SELECT"), summary[0])


def _filled(text: str, arguments: tuple[str, ...], *, empty: str = "''") -> str:
    def value(found: re.Match[str]) -> str:
        index = int(found[1])
        return (arguments[index] or empty) if index < len(arguments) else "?"

    return _MARK.sub(value, text)


def is_time(value: str | None) -> bool:
    """Whether the value is a date with a time, which summaries leave out."""
    return value is not None and bool(_TIME.match(value))


def columns_of(sql: str, arguments: tuple[str, ...]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the columns that a statement compares or sets anywhere, with their values."""
    for name, marked in _marked_columns(sql):
        yield name, frozenset(_filled(value, arguments) for value in marked)


@functools.lru_cache(maxsize=4096)
def _marked_columns(sql: str) -> Sequence[tuple[str, frozenset[str]]]:
    read = read_text(sql)
    if read is None:
        return ()
    found = [each for node in read.whole.tree.find_all(exp.EQ, exp.In) if (each := comparison(node)) is not None]
    given = [(identifier(column), values) for column, values in found]
    given += [(name, [value]) for query in read.parts for name, value in query.inserted]
    return [(name, frozenset(map(_value, values))) for name, values in given]


def _value(node: Any) -> str:
    """Return a mark for a parameter, a literal's text, and nothing for an expression."""
    inner = unwrap(node)
    number = parameter(inner)
    return inner.name if number is None and isinstance(inner, exp.Literal) else _mark(number)


def _mark(number: int | None) -> str:
    return "" if number is None else f"\ue000{number}\ue001"


def describe_step(step: Step, run: Run | None = None) -> str:
    """Return the step's statement in a few words."""
    return "; ".join(describe_parts(step, run))


def describe_parts(step: Step, run: Run | None = None) -> list[str]:
    """Return each part of the step's statement in a few words: verb, table, rows, lock or new values.

    If a run is given, columns that an UPDATE writes back as they were read are left out.
    """
    unchanged = _unchanged(step, run) if run else frozenset()
    return [_in_short(summary, unchanged) for summary in _summarize(step.sql, step.arguments)]


def _unchanged(step: Step, run: Run) -> frozenset[str]:
    """Return the columns that the step writes back as its actor last read them; none if these are all."""
    summary = summarize(step)
    if summary.verb != "UPDATE":
        return frozenset()
    earlier = [other for other in run.steps if other.actor == step.actor and other.ended < step.begun]
    for source in reversed([other for other in earlier if summarize(other).table == summary.table]):
        for row in source.values:
            if summarize(source).verb == "SELECT" and all(
                row[name] in summary.keys[name] for name in summary.keys.keys() & row
            ):
                given = {name for name in summary.sets if name in summary.plain or summary.sets[name] == "NULL"}
                same = {name for name in given & row.keys() if _as_read(row[name]) == summary.sets[name]}
                return frozenset(same if same < summary.sets.keys() else ())
    return frozenset()


def _as_read(value: str | None) -> str:
    return "NULL" if value is None else value


def _in_short(summary: StatementSummary, unchanged: frozenset[str]) -> str:
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
        return f"error {step.sqlstate}"
    verb = summarize(step).verb
    if verb == "INSERT" and step.rows == 1:
        return ""
    if step.values and verb == "SELECT" and not _EXISTS.match(step.sql):
        return "; ".join(filter(None, (_listed(relevant_columns(row, step, run)) for row in step.values))) or _rows(
            step.rows
        )
    return "" if step.rows is None else _rows(step.rows)


def _rows(number: int | None) -> str:
    return "1 row" if number == 1 else f"{number} rows"


def relevant_columns(row: Mapping[str, str | None], step: Step, run: Run | None) -> dict[str, str | None]:
    """Return the columns of a row that matter in the run: those that an actor writes or searches by."""
    columns = {name: value for name, value in row.items() if not is_time(value)}
    fixed = {name for name, values in summarize(step).keys.items() if len(values) == 1}
    relevant = {name: value for name, value in columns.items() if name in _written(step, run) - fixed}
    return relevant or dict(list(columns.items())[:_FEW])


def _written(step: Step, run: Run | None) -> set[str]:
    """Return the columns that writes to the same table set or compare."""
    if run is None:
        return set()
    writes = [other for other in run.steps if summarize(other).sets and summarize(other).table == summarize(step).table]
    return {
        name
        for write in writes
        for name in (*(summarize(write).sets.keys() - _unchanged(write, run)), *summarize(write).keys)
    }


def _listed(columns: Mapping[str, str | None]) -> str:
    shown = [f"{name}={'NULL' if value is None else value or repr('')}" for name, value in columns.items()]
    kept = [text for text, value in zip(shown, columns.values(), strict=True) if not is_time(value)]
    return ", ".join(kept[:_MOST]) + ("…" if len(kept) > _MOST else "")
