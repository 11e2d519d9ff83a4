"""Many guarded writes in one statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import connections, models, transaction

from django_lockstep.locking.fields import parents_of, primary_key, version_field
from django_lockstep.locking.memory import is_expression
from django_lockstep.locking.writes import auto_now_values, column, place_type, python_values, valid_version, write_if

GuardedWrite = tuple[Any, int, Mapping[str, Any]]
"""Primary key, seen version, and the values to write."""


def update_many(model: type[models.Model], changes: list[GuardedWrite], *, using: str) -> list[Any]:
    """Write each change whose row still has its version; return the keys of the others, in the order given."""
    writes = [
        (primary_key(model, pk), valid_version(version), _plain(model, values)) for pk, version, values in changes
    ]
    if len({pk for pk, _, _ in writes}) != len(writes):
        raise ValueError("a primary key is given twice: only one of its changes could be written")
    if not writes:
        return []
    # One statement cannot update several tables by one guard, and only PostgreSQL has UPDATE ... FROM with RETURNING.
    in_one = connections[using].vendor == "postgresql" and not parents_of(model)
    written = (_in_one_statement if in_one else _one_by_one)(model, writes, using=using)
    return [pk for pk, _, _ in writes if pk not in written]


def _plain(model: type[models.Model], values: Mapping[str, object]) -> dict[str, Any]:
    if computed := [name for name, value in values.items() if is_expression(value)]:
        raise ValueError(f"expressions cannot be written in a batch: {', '.join(computed)}")
    changes = python_values(model, {**auto_now_values(model), **values})
    return {column(model, name).attname: getattr(value, "pk", value) for name, value in changes.items()}


def _one_by_one(model: type[models.Model], changes: list[Any], *, using: str) -> set[Any]:
    with transaction.atomic(using=using):
        return {
            pk
            # Sorted, so that two batches write (and lock) their common rows in the same order.
            for pk, seen, values in sorted(changes, key=lambda change: change[0])
            if write_if(model, pk, values, seen=seen, using=using)
        }


# The rows are locked in primary-key order before any is written: without that, two batches deadlock. The UPDATE
# compares the version again, because it may have changed while the lock was waited for.
_STATEMENT = """
WITH change ({names}) AS (VALUES {rows}),
     held AS (SELECT {pk} FROM {table} WHERE ({pk}) IN (SELECT {pk} FROM change) ORDER BY {pk} FOR NO KEY UPDATE)
UPDATE {table} AS target SET {assignments}
FROM change JOIN held USING ({pk})
WHERE ({target_pk}) = ({change_pk}) AND target.{version} = change.{version}
RETURNING {target_pk}
"""


def _in_one_statement(model: type[models.Model], changes: list[Any], *, using: str) -> set[Any]:
    connection = connections[using]

    def quote(name: str | None) -> str:
        return connection.ops.quote_name(str(name))

    keys, version = model._meta.pk_fields, version_field(model)
    key_columns = [quote(field.column) for field in keys]
    attnames = sorted({attname for _, _, values in changes for attname in values})
    fields = [column(model, attname) for attname in attnames]
    columns = [quote(field.column) for field in fields]
    flags = [quote(f"given {number}") for number in range(len(fields))]
    assignments = [f"{quote(version.column)} = target.{quote(version.column)} + 1"] + [
        f"{name} = CASE WHEN change.{flag} THEN change.{name} ELSE target.{name} END"
        for name, flag in zip(columns, flags, strict=True)
    ]
    # Casts give each column of VALUES its type, also where every value is NULL.
    casts = [f"%s::{place_type(field, connection)}" for field in (*keys, version, *fields)]
    casts += ["%s::boolean"] * len(fields)
    sql = _STATEMENT.format(
        names=", ".join([*key_columns, quote(version.column), *columns, *flags]),
        rows=", ".join([f"({', '.join(casts)})"] * len(changes)),
        assignments=", ".join(assignments),
        pk=", ".join(key_columns),
        target_pk=", ".join(f"target.{name}" for name in key_columns),
        change_pk=", ".join(f"change.{name}" for name in key_columns),
        table=quote(model._meta.db_table),
        version=quote(version.column),
    )
    params: list[Any] = []
    for key, seen, values in changes:
        prepared = [field.get_db_prep_save(values.get(field.attname), connection) for field in fields]
        # A flag for each column: a change that omits a column keeps the row's value, which None could not express.
        parts = key if len(keys) > 1 else [key]
        key_params = [field.get_db_prep_save(part, connection) for field, part in zip(keys, parts, strict=True)]
        params += [*key_params, seen, *prepared, *(name in values for name in attnames)]
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return {primary_key(model, row if len(keys) > 1 else row[0]) for row in cursor.fetchall()}
