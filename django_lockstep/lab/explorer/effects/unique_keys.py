"""The unique keys that an INSERT adds, by their values: inserters of different keys neither wait nor fail.

A key counts as a number that is equal for equal values. It may be equal for others, too, which costs schedules only. So
values are compared without case and punctuation, and only where the index compares them as text, numbers or UUIDs.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django_lockstep.lab.explorer.effects.catalog import TableFacts, UniqueIndex
from django_lockstep.lab.explorer.effects.footprints import LockedKey, Mode
from django_lockstep.lab.explorer.effects.plpgsql import EVERY_COLUMN
from django_lockstep.lab.explorer.effects.queries import Query, exp, parameter

__all__ = ["InsertedKeys", "inserted_keys"]

_OTHER_BASE = re.compile(r"\s*[+-]?0[xob]", re.IGNORECASE)
_NULL = -1
"""Stands for NULL where another operand has the number of a parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertedKeys:
    """The keys of the one row that an INSERT adds."""

    table: str
    """The table's name."""
    parts: tuple[tuple[UniqueIndex, tuple[int, ...]], ...]
    """For each index the numbers of the parameters that are its columns' values, or `_NULL`."""

    @property
    def every_key(self) -> LockedKey:
        """The lock that stands for any key of the table."""
        return (self.table, None), Mode.UNIQUE

    def has_index(self, name: str) -> bool:
        """Whether this is one of the indexes."""
        return any(index.name == name for index, _ in self.parts)

    def locks(self, params: Any) -> frozenset[LockedKey] | None:
        """Return the keys with these parameters; None if they are not certain."""
        given: Sequence[Any] = params if isinstance(params, list | tuple) else ()
        found: set[LockedKey] = set()
        for index, numbers in self.parts:
            if any(number >= len(given) for number in numbers):
                return None
            values = [None if number == _NULL else given[number] for number in numbers]
            if not all(value is None or _is_exact(value) for value in values):
                return None
            if not (index.nulls_distinct and None in values):
                number = zlib.crc32("|".join(map(_normalized, values)).encode())
                found.add(((f"{self.table}, index {index.name}", number), Mode.UNIQUE))
        return frozenset(found)


def inserted_keys(query: Query, table: TableFacts) -> InsertedKeys | None:
    """Return the keys that an INSERT of one row into the table adds; None if they are not certain."""
    # A deferred constraint is checked, and waited for, at COMMIT. A trigger may set any key.
    if table.indexes is None or table.deferred or EVERY_COLUMN in table.assigned:
        return None
    if query.on_conflict or not query.inserts_one_row:
        return None
    values = dict(query.inserted)
    parts = []
    for index in table.indexes:
        if len(index.columns) == 1 and index.columns[0] in table.numbered - values.keys() - table.assigned:
            continue  # a number of the sequence is never given twice
        numbers = _operands(index, values)
        if numbers is None or (table.numbered | table.assigned).intersection(index.columns):
            return None
        parts.append((index, numbers))
    return InsertedKeys(table=table.name, parts=tuple(parts))


def _operands(index: UniqueIndex, values: Mapping[str, Any]) -> tuple[int, ...] | None:
    nodes = [values.get(column) for column in index.columns]
    numbers = [_NULL if isinstance(node, exp.Null) else parameter(node) for node in nodes]
    known = tuple(number for number in numbers if number is not None)
    return known if known and len(known) == len(numbers) else None


def _is_exact(value: Any) -> bool:
    # Of these types alone, whose subclasses may be sent as something else; the server reads 0x10 as 16.
    return type(value) in (int, str, UUID) and not _OTHER_BASE.match(str(value))


def _normalized(value: Any) -> str:
    """Return text that is equal for values that the server takes for equal, such as ``05`` and 5 as numbers."""
    letters = "".join(filter(str.isalnum, str(value).casefold()))
    return "NULL" if value is None else letters.lstrip("0")
