"""Summaries of statements for people: verb, table, rows, and what is set.

Reads the SQL that Django generates; what it does not recognise stays empty. Summaries are for timelines and
explanations only; which steps depend on each other is decided by `django_lockstep.lab.explorer.sql`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from django_lockstep.lab.explorer.parts import Part, split_parts
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
_NAME = re.compile(r'"(\w+)"')
_PREFIX = re.compile(r'"\w+"\.(?=")')
_TABLE = re.compile(r"\b(?:FROM|INTO|UPDATE)\s+(?:ONLY\s+)?(\w+)", re.IGNORECASE)
_CLAUSE = re.compile(
    r"\b(FROM|SET|WHERE|VALUES|RETURNING|ON CONFLICT|GROUP BY|ORDER BY|LIMIT|OFFSET|FOR(?= (?:NO KEY |KEY )?"
    r"(?:UPDATE|SHARE)\b))\b",
    re.IGNORECASE,
)
_MARK = re.compile("\ue000(\\d+)\ue001")
_EQUAL = re.compile(r"(\w+)\s*=\s*(\ue000\d+\ue001|-?[\d.]+|'[^']*')")
_AMONG = re.compile(r"(\w+) IN \(([^()]*)\)", re.IGNORECASE)
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
    numbers = iter(range(sql.count("%s")))
    marked = re.sub("%s|%%", lambda found: f"\ue000{next(numbers)}\ue001" if found[0] == "%s" else "%", sql)
    text = _NAME.sub(r"\1", _PREFIX.sub("", marked))
    parts = split_parts(text) if text.upper().startswith("WITH ") else [Part(name="", text=text)]
    summary = [_summarize_part(part.text, arguments) for part in parts]
    of_tables = tuple(each for each in summary if each.table and each.table not in {part.name for part in parts})
    return of_tables or (summary[-1],)


def _summarize_part(text: str, arguments: tuple[str, ...]) -> StatementSummary:
    verb = text.partition(" ")[0].upper()
    table = _TABLE.search(text)
    if verb not in {"SELECT", "INSERT", "UPDATE", "DELETE"} or table is None:
        return StatementSummary(verb=verb, where=_filled(text.partition(" ")[2], arguments))
    clauses = _clauses(text)
    where = clauses.get("WHERE", "")
    sets = dict(_inserted(clauses) if verb == "INSERT" else _assigned(clauses.get("SET", "")))
    return StatementSummary(
        verb=verb,
        table=table[1],
        where=_filled(_bare(where), arguments),
        keys=_keys(where, arguments),
        sets={name: _filled(value, arguments, empty="") for name, value in sets.items()},
        plain=frozenset(name for name, value in sets.items() if _MARK.fullmatch(value)),
        locking=f"FOR {clauses['FOR']}" if "FOR" in clauses else "",
    )


def summarize(step: Step) -> StatementSummary:
    """Return the summary of the step's statement; of several parts the first one that writes."""
    summary = _summarize(step.sql, step.arguments)
    return next((part for part in summary if part.verb != "SELECT"), summary[0])


def _filled(text: str, arguments: tuple[str, ...], *, empty: str = "''") -> str:
    def value(found: re.Match[str]) -> str:
        index = int(found[1])
        return (arguments[index] or empty) if index < len(arguments) else "?"

    return _MARK.sub(value, text)


def _flat(text: str) -> str:
    """Return the text with the contents of parentheses and quotes blanked out."""
    depth, quoted, kept = 0, False, []
    for letter in text:
        quoted ^= letter == "'"
        depth -= letter == ")" and not quoted
        kept.append(letter if depth <= 0 and not quoted else " ")
        depth += letter == "(" and not quoted
    return "".join(kept)


def _clauses(text: str) -> dict[str, str]:
    """Return the statement's clauses by their first word."""
    found = [*_CLAUSE.finditer(_flat(text))]
    ends = [match.start() for match in found[1:]] + [len(text)]
    parts = {match[1].upper(): text[match.end() : end].strip() for match, end in zip(found, ends, strict=False)}
    return {"": text[: found[0].start()] if found else text, **parts}


def _split(text: str) -> list[str]:
    """Split the text at commas outside of parentheses."""
    cuts = [index for index, letter in enumerate(_flat(text)) if letter == ","]
    return [text[start:end].strip() for start, end in zip([0, *(i + 1 for i in cuts)], [*cuts, None], strict=True)]


def _assigned(text: str) -> Iterator[tuple[str, str]]:
    for part in _split(text) if text else ():
        name, _, value = part.partition("=")
        yield name.strip(), _bare(value.strip())


def _inserted(clauses: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    names = re.search(r"\(([^()]*)\)", clauses[""])
    first = _split(clauses.get("VALUES", ""))[0]
    values = _split(_bare(first)) if first.startswith("(") else []
    if names and len(values) == len(_split(names[1])):
        yield from zip(_split(names[1]), values, strict=True)


def _bare(text: str) -> str:
    """Return the text without parentheses around all of it."""
    inner = text[1:-1]
    whole = text.startswith("(") and text.endswith(")") and not _flat(text)[1:-1].strip()
    return _bare(inner) if whole else text


def _keys(where: str, arguments: tuple[str, ...]) -> dict[str, frozenset[str]]:
    if re.search(r"\b(OR|NOT|SELECT|CASE)\b", where, re.IGNORECASE):
        return {}
    equal = {name: [value] for name, value in _EQUAL.findall(where)}
    among = {name: _split(values) for name, values in _AMONG.findall(where)}
    return {
        name: frozenset(_filled(value, arguments) for value in values) for name, values in {**among, **equal}.items()
    }


def is_time(value: str | None) -> bool:
    """Whether the value is a date with a time, which summaries leave out."""
    return value is not None and bool(_TIME.match(value))


def columns_of(sql: str, arguments: tuple[str, ...]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the columns that a statement compares or sets, with their values."""
    for summary in _summarize(sql, arguments):
        yield from summary.keys.items()
        yield from ((name, frozenset({summary.sets[name]})) for name in summary.plain)


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
