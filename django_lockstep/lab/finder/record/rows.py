"""The rows that a result holds, led back to their tables: joins, ``select_related`` and raw SQL alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django_lockstep.lab.finder.record.catalog import ServerTable, TableCatalog
from django_lockstep.lab.finder.record.fingerprints import Fingerprints, comparable
from django_lockstep.lab.finder.record.recording import RowRead

__all__ = ["RowReader"]

_MOST_ROWS = 200
"""Of a statement; units that read more do so in loops, in which the first rows tell as much."""
_INTEGERS = frozenset({20, 21, 23})


@dataclass(slots=True)
class _Group:
    """Columns of a result that came from one row of a table."""

    table: ServerTable
    columns: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By name, the place in the result and the type's OID."""


class RowReader:
    """Reads rows, and notes the order of their keys."""

    def __init__(self, catalog: TableCatalog, fingerprints: Fingerprints) -> None:
        self._catalog = catalog
        self._fingerprints = fingerprints

    def read(self, result: Any, driver: Any, keys: dict[str, int | str]) -> tuple[RowRead, ...]:
        """Return the rows; add the values of their keys to ``keys``, by fingerprint."""
        self._catalog.ensure_loaded(driver)
        if result is None or not result.nfields:
            return ()
        groups = self._groups(result, driver)
        count = min(result.ntuples, _MOST_ROWS)
        return tuple(
            row for number in range(count) for group in groups for row in self._row(result, number, group, keys)
        )

    def _groups(self, result: Any, driver: Any) -> list[_Group]:
        groups: list[_Group] = []
        last: dict[str, _Group] = {}
        for place in range(result.nfields):
            oid = result.ftable(place)
            table = self._catalog.get(oid, driver) if oid else None
            # Binary values would have to be decoded by type; where a project asks for them, they are left out.
            if table is None or result.fformat(place) or not comparable(result.ftype(place)):
                continue
            column = table.columns.get(result.ftablecol(place), "")
            group = last.get(table.table.name)
            # The column a second time: the table is joined to itself.
            if group is None or column in group.columns:
                group = last[table.table.name] = _Group(table)
                groups.append(group)
            group.columns[column] = (place, result.ftype(place))
        return groups

    def _row(self, result: Any, number: int, group: _Group, keys: dict[str, int | str]) -> list[RowRead]:
        texts = {name: result.get_value(number, place) for name, (place, _) in group.columns.items()}
        values = {name: self._fingerprints.of_column(texts[name], group.columns[name][1]) for name in texts}
        columns = group.table.table.key
        if not columns or not all(name in values for name in columns):
            return [RowRead(table=group.table.table.name, values=values)]
        if any(texts[name] is None for name in columns):
            return []  # nothing was found by an outer join
        key = ",".join(values[name] for name in columns)
        if len(columns) == 1:
            text = texts[columns[0]].decode(errors="replace")
            # As a number, so that 10 comes after 9.
            keys[key] = int(text) if group.columns[columns[0]][1] in _INTEGERS else text
        return [RowRead(table=group.table.table.name, key=key, values=values)]
