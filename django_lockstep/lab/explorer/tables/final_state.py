"""Final states of runs as comparable rows: what a run left in its tables, and in which columns two of them differ."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from django_lockstep.lab.explorer.tables.canonical import canonical_text
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import joined

StateRow = Mapping[str, Any]
FinalState = str | Mapping[str, Sequence[StateRow]]
"""What ``observe`` returned, as text; without it the rows of each table by which it differs from before."""

REMOVED = ", removed"
"""Suffix of a table's name for the rows that the run has removed."""
KEY = ""
"""Stands for the column of a new row with the key that a sequence gave it; not compared, but what mentions it is."""
_MOST_ROWS = 6
"""Rows of a table that a text shows."""


def comparison_text(value: Any) -> str:
    """Return text that is the same for the same state, row or value; rows are sorted and counted by it."""
    return json.dumps(value, sort_keys=True, default=str)


def without_columns(state: FinalState, columns: Collection[str]) -> FinalState:
    """Return the state without these columns, such as ``auth_user.password`` or ``*.token``.

    Nor is a table compared of which none is left, such as that of ``django_session.*``.
    """
    if isinstance(state, str) or not columns:
        return state
    kept = {table: [_kept(table, row, columns) for row in rows] for table, rows in state.items()}
    # Rows that had no column to compare before still count.
    return {
        table: sorted(rows, key=comparison_text)
        for table, rows in kept.items()
        if any(map(_columns, rows)) or not any(map(_columns, state[table]))
    }


def _kept(table: str, row: StateRow, columns: Collection[str]) -> StateRow:
    return {
        name: value
        for name, value in row.items()
        if name == KEY or not any(fnmatchcase(_column(table, name), column) for column in columns)
    }


def _columns(row: StateRow) -> StateRow:
    return {name: value for name, value in row.items() if name != KEY}


def _column(table: str, name: str) -> str:
    return f"{table.removesuffix(REMOVED)}.{name}"


def differing_columns(state: FinalState, second: FinalState) -> set[str]:
    """Return the columns whose values differ between two states.

    Empty if the states have other tables or other numbers of rows: then not only columns differ.
    """
    if isinstance(state, str) or isinstance(second, str) or state.keys() != second.keys():
        return set()
    if any(len(state[table]) != len(second[table]) for table in state):
        return set()
    return {
        _column(table, name)
        for table, rows in state.items()
        for name in {name for row in rows for name in row}
        if _values(rows, name) != _values(second[table], name)
    }


def _values(rows: Sequence[StateRow], name: str) -> Counter[str]:
    return Counter(comparison_text(row.get(name)) for row in rows)


def describe_state(state: FinalState) -> str:
    """Return the state in a line."""
    if isinstance(state, str):
        return state
    texts = [joined([table, _rows(rows)], ": ") for table, rows in state.items()]
    return joined(texts, "; ") if texts else _("no table is changed")


def _rows(rows: Sequence[StateRow]) -> str:
    shown = [_row(row) for row in rows[:_MOST_ROWS]]
    more = [_("and {number} more rows", number=len(rows) - _MOST_ROWS)] if len(rows) > _MOST_ROWS else []
    return joined([*shown, *more], " | ")


def _row(row: StateRow) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in row.items())


def _value(value: Any) -> str:
    return "NULL" if value is None else str(value) or "''"


def describe_difference(state: FinalState, expected: FinalState) -> list[str]:
    """Return in words how the state differs from the expected one, one text for each difference."""
    if isinstance(state, str) or isinstance(expected, str):
        return [] if state == expected else [_instead(describe_state(state), describe_state(expected))]
    return [
        joined([table, text], ": ")
        for table in sorted(state.keys() | expected.keys())
        for text in _table_difference(
            state.get(table, ()),
            expected.get(table, ()),
            before=[*state.get(table + REMOVED, ()), *expected.get(table + REMOVED, ())],
        )
    ]


def _table_difference(
    rows: Sequence[StateRow], expected: Sequence[StateRow], *, before: Sequence[StateRow]
) -> Iterator[str]:
    surplus, missing = _only_in(rows, expected), _only_in(expected, rows)
    # Greedy: the two most similar rows are taken for one row that was changed. A guess, for the text only.
    while surplus and missing:
        ours, theirs = min(
            ((row, second) for row in surplus for second in missing), key=lambda pair: len(_unlike(*pair))
        )
        surplus.remove(ours)
        missing.remove(theirs)
        if _unlike(ours, theirs):
            yield _row_difference(ours, theirs, alone=len(rows) == 1)
    yield from (_("one row more, {row}", row=_filled(row, before)) for row in surplus)
    yield from (_("one row less, {row}", row=_filled(row, before)) for row in missing)


def _filled(row: StateRow, before: Sequence[StateRow]) -> str:
    """Return the columns that are filled; of a row that was there ``before`` what has changed comes first."""
    changed = min((_unlike(row, was) for was in before), key=len, default=[])
    filled = {name: value for name, value in row.items() if value not in (None, "")} or row
    filled = {**{name: row[name] for name in changed}, **filled}
    shown = dict(itertools.islice(filled.items(), _MOST_COLUMNS))
    return _row(shown) + (", ..." if len(shown) < len(filled) else "")


_MOST_COLUMNS = 8
"""Of a whole row in a difference."""


def _only_in(rows: Sequence[StateRow], others: Sequence[StateRow]) -> list[StateRow]:
    """Return the rows that the others do not have, as a difference of multisets."""
    left = Counter(map(comparison_text, others))
    kept = []
    for row in rows:
        if left[comparison_text(row)]:
            left[comparison_text(row)] -= 1
        else:
            kept.append(row)
    return kept


def _unlike(row: StateRow, second: StateRow) -> list[str]:
    return [name for name in row if not _is_alike(row[name], second.get(name))]


def _is_alike(value: Any, other: Any) -> bool:
    """Whether both are one value, or name one new row, which is the only one of its table in one of two ends."""
    plain, both = _LABEL.sub("#", str(value)), _LABEL.sub("#", str(other))
    return bool(value == other or (plain == both and plain in (value, other)))


def _row_difference(ours: StateRow, theirs: StateRow, *, alone: bool) -> str:
    names = _unlike(ours, theirs)
    text = joined([_instead(f"{name} {_value(ours[name])}", _value(theirs.get(name))) for name in names], ", ")
    same = [name for name in ours if name not in names and ours[name] not in (None, "")][:2]
    if alone or not same:
        return text
    return _("{difference} in the row with {values}", difference=text, values=_row({name: ours[name] for name in same}))


def _instead(value: str, expected: str) -> str:
    return _("{value} instead of {expected}", value=value, expected=expected)


# Keys of new rows.
#
# Keys that a sequence generates depend on the schedule: the actor that inserts first gets the lower one. Two ends that
# differ in such keys alone are the same end, but which row refers to which is part of it. So wherever a key of a new
# row stands, in a column of any type, in a text or a JSON value, two ends may have other keys there, if they have them
# in all places (`canonical`). To show them, they are named after the actor that made the row, and a number that counts
# what this actor made in the table and is still there. If a table has only one new row, its label names no actor. Other
# numbers are not mistaken for keys, because sequences begin every run at numbers that nothing else is likely to have.

Makers = Mapping[int, Mapping[str, str]]
"""The actor that made a row, by the table's OID and the key as text."""
Labels = Mapping[str, str]
"""What stands for the key of a new row, by the key as text."""
_LABEL = re.compile(r"\b\w+#(?=\d)")
_INTEGER = re.compile(r"(?<!\d)(?<!\d\.)(\d{6,})(?!\d|\.\d)")


def label_keys(keys: Iterable[int], makers: Mapping[str, str], *, first: int) -> dict[str, str]:
    """Return a label such as ``A#1``, or ``#1``, for each of a table's new keys.

    ``keys`` are those of rows that are still there, ``makers`` who got which key by an INSERT; of rows that a trigger
    made it is not known. Numbers of the set-up, up to ``first``, are the same in every run, and stay.
    """
    ordered = list(map(str, sorted(keys)))
    counts: Counter[str] = Counter()
    labels = {key: f"{maker}#gone" for key, maker in makers.items() if key.isdigit() and int(key) > first}
    for key in ordered:
        maker = makers.get(key, "") if len(ordered) > 1 else ""
        counts[maker] += 1
        labels[key] = f"{maker}#{counts[maker]}"
    return labels


def without_kept(rows: Sequence[StateRow], removed: Sequence[StateRow]) -> tuple[list[StateRow], list[StateRow]]:
    """Return the new rows and the removed ones without pairs that differ in the generated key alone."""
    left = Counter(map(comparison_text, removed))
    new = []
    for row in rows:
        if left[key := comparison_text(_columns(row))]:
            left[key] -= 1
        else:
            new.append(row)
    return new, [json.loads(key) for key in sorted(left.elements())]


def with_labels(state: FinalState, labels: Labels) -> FinalState:
    """Return the state as it is shown, with labels in place of keys of new rows."""
    if isinstance(state, str) or not labels:
        return state
    shown = {table: [_labelled(_columns(row), labels) for row in rows] for table, rows in state.items()}
    return {table: sorted(rows, key=comparison_text) for table, rows in shown.items()}


def canonical_state(state: FinalState, results: Mapping[str, str], labels: Labels) -> str:
    """Return a text that is the same for the same state and results, whichever keys the new rows got."""
    if isinstance(state, str):
        return repr((state, sorted((name, label_text(text, labels)) for name, text in results.items())))
    rows = [(table, row) for table in state for row in state[table]]
    texts = [f"{table} {row.get(KEY, '')}: {comparison_text(_columns(row))}" for table, row in rows]
    texts += [f"{name}: {text}" for name, text in results.items()]
    owned = {str(row.get(KEY)) for _, row in rows}
    gone = {key: label for key, label in labels.items() if key not in owned}
    return canonical_text((_split(text, labels) for text in texts), gone)


def _split(text: str, labels: Labels) -> tuple[str, ...]:
    """Return the text split at the keys in it."""
    parts = [""]
    for place, part in enumerate(_INTEGER.split(text)):
        if place % 2 and part in labels:
            parts += [part, ""]
        else:
            parts[-1] += part
    return tuple(parts)


def label_text(text: str, labels: Labels) -> str:
    """Return the text with labels in place of keys of new rows."""
    return _INTEGER.sub(lambda number: labels.get(number[0], number[0]), text) if labels else text


def _labelled(value: Any, labels: Labels) -> Any:
    if isinstance(value, dict):
        return {label_text(name, labels): _labelled(part, labels) for name, part in value.items()}
    if isinstance(value, list):
        return [_labelled(part, labels) for part in value]
    return label_text(value, labels) if isinstance(value, str) else labels.get(str(value), value)
