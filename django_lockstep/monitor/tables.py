"""Finds the table and the model that a lock is on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db import connections

from django_lockstep.monitor.queries import RELATIONS, ReportRow, fetch

__all__ = ["LockedTable", "tables_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedTable:
    """A table that a session waits for, or for a row of it."""

    name: str
    """Its name, with its schema if that is not on the search path."""
    model: str | None
    """The label of the model with this table; None if no installed model has it."""
    sql_name: str
    """Its full name, quoted."""
    key_columns: tuple[str, ...]
    """The columns of its primary key, quoted."""


def tables_of(cursor: Any, oids: Iterable[int], *, using: str) -> dict[int, LockedTable]:
    """Return tables by the OIDs of these tables and indexes; those not committed yet are left out."""
    asked = sorted(set(oids))
    labels = _labels(using) if asked else {}
    return {row["oid"]: _table(row, labels, using=using) for row in (fetch(cursor, RELATIONS, asked) if asked else ())}


def _table(row: ReportRow, labels: dict[str, str], *, using: str) -> LockedTable:
    quote = connections[using].ops.quote_name
    full = f"{quote(row['nspname'])}.{quote(row['relname'])}"
    # A db_table without a schema is the first such table on the search path.
    model = (labels.get(quote(row["relname"])) if row["visible"] else None) or labels.get(full)
    return LockedTable(
        name=row["relname"] if row["visible"] else f"{row['nspname']}.{row['relname']}",
        model=model,
        sql_name=row["sql_name"],
        key_columns=tuple(row["key_columns"]),
    )


def _labels(using: str) -> dict[str, str]:
    """Return models' labels by quoted table, those of automatic many-to-many tables included."""
    quote = connections[using].ops.quote_name
    models = [model for model in apps.get_models(include_auto_created=True) if not model._meta.proxy]
    # If several models share a table, the managed one comes last and is kept.
    models.sort(key=lambda model: model._meta.managed)
    return {quote(model._meta.db_table): model._meta.label for model in models}
