"""Reads what a connection has just executed: the statement, fingerprints of its values, and the rows that came back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django_lockstep.lab.finder.record.catalog import TableCatalog
from django_lockstep.lab.finder.record.fingerprints import Fingerprints
from django_lockstep.lab.finder.record.parameters import first, positional, type_name
from django_lockstep.lab.finder.record.recording import RecordedStatement, Table
from django_lockstep.lab.finder.record.rows import RowReader

__all__ = ["StatementReader", "is_of_interest"]

_OF_INTEREST = re.compile(r"[\s(]*(?:SELECT|INSERT|UPDATE|DELETE|MERGE|WITH|LOCK)\b", re.IGNORECASE)


def is_of_interest(sql: str) -> bool:
    """Whether the statement reads, writes or locks; not that it is one of a transaction, or of the schema."""
    return _OF_INTEREST.match(sql) is not None


class StatementReader:
    """Reads statements for an execute wrapper; ``on_tables`` is called with the tables of a database that is new."""

    def __init__(self, fingerprints: Fingerprints, on_tables: Callable[[list[Table]], None]) -> None:
        self._fingerprints = fingerprints
        self._on_tables = on_tables
        self._catalogs: dict[str, TableCatalog] = {}

    def read(
        self, sql: str, params: Any, context: Any, *, keys: dict[str, int | str], many: bool, **where: Any
    ) -> RecordedStatement:
        """Return the statement; add the primary keys that it returned to ``keys``, by fingerprint.

        ``context`` is that of the wrapper, after the execution; ``where`` are further fields of the statement.
        """
        connection, cursor = context["connection"], context["cursor"]
        text, values = positional(sql, first(params) if many else params)
        rows = RowReader(self._catalog(connection), self._fingerprints)
        return RecordedStatement(
            sql=text,
            params=tuple(map(self._fingerprints.of, values)),
            types=tuple(map(type_name, values)),
            rows=cursor.rowcount if cursor.rowcount >= 0 else None,
            read=rows.read(getattr(cursor.cursor, "pgresult", None), connection.connection, keys),
            alias=connection.alias,
            **where,
        )

    def _catalog(self, connection: Any) -> TableCatalog:
        # Not by alias: a mirror's alias reaches the same tables.
        name = str(connection.settings_dict["NAME"])
        if name not in self._catalogs:
            self._catalogs[name] = TableCatalog(self._on_tables)
        return self._catalogs[name]
