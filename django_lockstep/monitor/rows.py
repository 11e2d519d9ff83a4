"""Finds the row that a session waits for, by its ctid, without locking it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import DatabaseError, connections, transaction

from django_lockstep.errors import sqlstate_of
from django_lockstep.monitor.queries import ReportRow, rows_at
from django_lockstep.monitor.tables import LockedTable

__all__ = ["PrimaryKeys"]

_PROBLEMS = {
    "42501": "this role may not read the table",
    "55P03": "the table is locked",
    "57014": "looking it up took too long",
}
"""Why a table's rows could not be read, by SQLSTATE."""


class PrimaryKeys:
    """The primary keys of the rows that sessions wait for; each table is read once."""

    def __init__(self, waiting: Iterable[ReportRow], tables: dict[int, LockedTable], *, using: str) -> None:
        places = defaultdict(set)
        for row in waiting:
            if row["tuple"] is not None and row["relation"] in tables:
                places[row["relation"]].add((row["page"], row["tuple"]))
        self._found: dict[tuple[int, str], Any] = {}
        self._problems: dict[int, str] = {}
        for oid, wanted in places.items():
            self._read(oid, tables[oid], sorted(wanted), using=using)

    def wait_facts(self, row: ReportRow) -> dict[str, Any]:
        """Return the attributes of `Wait` for the row: either ``pk`` or ``pk_unknown``."""
        relation, place = row["relation"], f"({row['page']},{row['tuple']})"
        if row["tuple"] is None:
            return {"pk_unknown": "the server does not say which"}
        if (relation, place) in self._found:
            return {"pk": self._found[relation, place]}
        # An UPDATE moves a row to another ctid.
        return {"pk_unknown": self._problems.get(relation, "it has just changed")}

    def _read(self, oid: int, table: LockedTable, places: Sequence[tuple[int, int]], *, using: str) -> None:
        if not table.key_columns:
            self._problems[oid] = "the table has no primary key"
            return
        try:
            found = _query_and_roll_back(rows_at(places, table=table.sql_name, columns=table.key_columns), using=using)
        except DatabaseError as error:
            self._problems[oid] = _PROBLEMS.get(sqlstate_of(error) or "", "it could not be read")
        else:
            self._found |= {(oid, place): key[0] if len(key) == 1 else tuple(key) for place, *key in found}


def _query_and_roll_back(sql: str, *, using: str) -> list[tuple[Any, ...]]:
    """Run the query in a savepoint and roll it back, so that its lock on the table is released at once."""
    # A savepoint also keeps an error, such as a table that is locked, from aborting the whole report.
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute(sql)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        transaction.set_rollback(True, using=using)
    return rows
