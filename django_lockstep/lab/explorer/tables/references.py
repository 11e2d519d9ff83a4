"""References to new rows, by who made the row instead of by its key.

Keys that a sequence generates depend on the schedule: the actor that inserts first gets the lower one. Two ends that
differ in such keys alone are the same end, but which row refers to which is part of it. So each key of a new row is
replaced by the actor that made the row, and a number that counts what this actor made in the table and is still there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django_lockstep.lab.explorer.tables.final_state import StateRow, row_key

__all__ = ["Makers", "label_rows", "with_labels"]

Makers = Mapping[tuple[int, str], str]
"""The actor that made a row, by the table's OID and the key as text."""


def label_rows(keys: Iterable[int], table: int, makers: Makers) -> dict[int, str]:
    """Return a label such as ``A#1`` for each of these keys that an actor's INSERT returned.

    Others stay as they are: those of the set-up are the same in every run.
    """
    counts: Counter[str] = Counter()
    labels = {}
    for key in sorted(keys):
        if (maker := makers.get((table, str(key)))) is not None:
            counts[maker] += 1
            labels[key] = f"{maker}#{counts[maker]}"
    return labels


def with_labels(rows: Sequence[StateRow], labels: Mapping[str, Mapping[Any, str]]) -> Sequence[StateRow]:
    """Return the rows with labels, by column, in place of keys of new rows; sorted again."""
    if not any(labels.values()):
        return rows
    labelled = [
        {name: labels[name].get(value, value) if name in labels else value for name, value in row.items()}
        for row in rows
    ]
    return sorted(labelled, key=row_key)
