"""Finds the table, the model and the row that a session waits for: the row by its ctid, without locking it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from django.apps import apps
from django.db import DatabaseError, connections

from django_lockstep.errors import sqlstate_of
from django_lockstep.monitor.queries import RELATIONS, ReportRow, fetch, read_only_cursor, rows_at

gettext_noop = str  # marks texts that are translated where they are shown
_PROBLEMS = {
    "42501": gettext_noop("this role may not read the table"),
    "55P03": gettext_noop("the table is locked"),
    "57014": gettext_noop("looking it up took too long"),
}
"""Why a table's rows could not be read, by SQLSTATE."""


def tables_of(cursor: Any, oids: Iterable[int], *, using: str) -> dict[int, ReportRow]:
    """Return tables by the OIDs of these tables and indexes; those not committed yet are left out.

    Each is a row of `RELATIONS` with ``name``, which has the schema if that is not on the search path, and ``model``,
    the label of the model with this table, None if no installed model has it.
    """
    distinct = sorted(set(oids))
    if not distinct:
        return {}
    labels, quote, tables = _labels(using), connections[using].ops.quote_name, {}
    for row in fetch(cursor, RELATIONS, distinct):
        schema, name, is_visible = row["nspname"], row["relname"], row["visible"]
        # A db_table without a schema is the first such table on the search path.
        model = labels.get(quote(name)) if is_visible else None
        row["name"] = name if is_visible else f"{schema}.{name}"
        row["model"] = model or labels.get(f"{quote(schema)}.{quote(name)}")
        tables[row["oid"]] = row
    return tables


def _labels(using: str) -> dict[str, str]:
    """Return models' labels by quoted table, those of automatic many-to-many tables included."""
    quote = connections[using].ops.quote_name
    models = [model for model in apps.get_models(include_auto_created=True) if not model._meta.proxy]
    # If several models share a table, the managed one comes last and is kept.
    models.sort(key=lambda model: model._meta.managed)
    return {quote(model._meta.db_table): model._meta.label for model in models}


class PrimaryKeys:
    """The primary keys of the rows that sessions wait for; each table is read once."""

    def __init__(self, waiting: Iterable[ReportRow], tables: dict[int, ReportRow], *, using: str) -> None:
        places = defaultdict(set)
        for row in waiting:
            if row["tuple"] is not None and row["relation"] in tables:
                places[row["relation"]].add((row["page"], row["tuple"]))
        self._keys: dict[tuple[int, str], Any] = {}
        self._problems: dict[int, str] = {}
        for oid, ctids in places.items():
            self._read(oid, tables[oid], sorted(ctids), using=using)

    def attributes_of(self, row: ReportRow) -> dict[str, Any]:
        """Return the attributes of `Wait` for the row: either ``pk`` or ``pk_unknown``."""
        relation, place = row["relation"], f"({row['page']},{row['tuple']})"
        if row["tuple"] is None:
            return {"pk_unknown": gettext_noop("the server does not say which")}
        if (relation, place) in self._keys:
            return {"pk": self._keys[relation, place]}
        # An UPDATE moves a row to another ctid.
        return {"pk_unknown": self._problems.get(relation, gettext_noop("it has just changed"))}

    def _read(self, oid: int, table: ReportRow, places: Sequence[tuple[int, int]], *, using: str) -> None:
        if not table["key_columns"]:
            self._problems[oid] = gettext_noop("the table has no primary key")
            return
        try:
            # A savepoint, so that an error, such as a table that is locked, does not abort the whole report.
            with read_only_cursor(using) as cursor:
                cursor.execute(rows_at(places, table=table["sql_name"], columns=table["key_columns"]))
                rows = cursor.fetchall()
        except DatabaseError as error:
            self._problems[oid] = _PROBLEMS.get(sqlstate_of(error) or "", gettext_noop("it could not be read"))
        else:
            self._keys |= {(oid, place): key[0] if len(key) == 1 else tuple(key) for place, *key in rows}
