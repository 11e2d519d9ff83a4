"""The query set and the manager of versioned models: writes of many rows, or of rows known only by key and version."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, Unpack

from asgiref.sync import sync_to_async
from django.db import IntegrityError, connections, models, transaction
from django.db.models import F

from django_lockstep.errors import translated_errors
from django_lockstep.locking.fields import parents_of, primary_key, uncounted_fields, version_field
from django_lockstep.locking.memory import is_expression
from django_lockstep.locking.ordered import update_in_order
from django_lockstep.locking.rows import LockOptions, lock_row, lock_rows
from django_lockstep.locking.shapes import CompiledQuerySet
from django_lockstep.locking.writes import (
    auto_now_values,
    column,
    current_version,
    place_type,
    python_values,
    valid_version,
    write_if,
)

M = TypeVar("M", bound=models.Model)

GuardedWrite = tuple[Any, int, Mapping[str, Any]]
"""Primary key, seen version, and the values to write."""


class VersionedQuerySet(CompiledQuerySet[M]):
    """Rows of a `VersionedModel`."""

    def lock(self, pk: object, **options: Unpack[LockOptions]) -> M:
        """Lock one row and return it. Options and errors are those of `django_lockstep.locking.lock_row`.

        Without ``of`` only the model's own rows are locked, not those that ``select_related`` reads.
        """
        return lock_row(self, pk, **options)

    def lock_many(self, pks: Iterable[object], *, skip_locked: bool = False, **options: Unpack[LockOptions]) -> list[M]:
        """Lock the rows and return them; as `lock`, with the errors of `django_lockstep.locking.lock_rows`."""
        return lock_rows(self, pks, skip_locked=skip_locked, **options)

    def update(self, **values: object) -> int:
        """Update the rows; as Django's.

        On PostgreSQL the model's version guard raises the versions; on other databases this method does.
        """
        version = version_field(self.model)
        if self._raises_versions(values) and version.name not in values:
            values[version.name] = F(version.name) + 1
        return super().update(**values)

    def update_in_order(self, **values: object) -> int:
        """Update the rows, locked in primary-key order; as `django_lockstep.locking.update_in_order`."""
        return update_in_order(self, **values)

    update_in_order.alters_data = True  # type: ignore[attr-defined]

    async def aupdate_in_order(self, **values: object) -> int:
        return await sync_to_async(self.update_in_order)(**values)

    def bulk_create(self, objs: Iterable[M], *args: Any, **options: Any) -> list[M]:
        """Insert the rows; as Django's. With ``update_conflicts`` the versions of the updated rows are raised.

        On PostgreSQL by the model's version guard, elsewhere by this method, for every row that already existed.
        """
        names = options.get("update_fields")
        if not options.get("update_conflicts") or not names or not self._raises_versions(names):
            return super().bulk_create(objs, *args, **options)
        version, quote = version_field(self.model), connections[self._alias].ops.quote_name
        # Django then writes the version of the new object, because its update_fields takes no expressions: the wrapper
        # puts an increment in its place.
        options["update_fields"] = list(dict.fromkeys([*names, version.name]))
        column = quote(str(version.column))
        # As SQLite, MariaDB and MySQL name the value that could not be inserted.
        pattern = re.compile(r"{0} = (?:EXCLUDED\.{0}|VALUES?\({0}\)|new\.{0})".format(re.escape(column)))
        raised = f"{column} = {quote(self.model._meta.db_table)}.{column} + 1"

        def count(execute: Any, sql: str, params: object, many: bool, context: object) -> Any:
            return execute(pattern.sub(lambda _: raised, sql), params, many, context)

        with connections[self._alias].execute_wrapper(count):
            return super().bulk_create(objs, *args, **options)

    def _raises_versions(self, names: Iterable[str]) -> bool:
        """Whether a write of these fields must raise the versions itself, because the database has no version guard."""
        if connections[self._alias].vendor == "postgresql":
            return False
        return bool(set(names) - {field.name for field in uncounted_fields(self.model)})

    def update_if_unchanged(self, pk: object, version: int, **values: object) -> int | None:
        """Write the values if the row still has this version; return the new one, or None for a conflict.

        A deleted row is a conflict too. One guarded UPDATE; nothing is written on None, and the transaction, if there
        is one, goes on. Raises as the instance's method does.
        """
        pk, changes = primary_key(self.model, pk), python_values(self.model, values)
        with translated_errors(model=self.model, pk=pk):
            written = write_if(self.model, pk, changes, seen=valid_version(version), using=self._alias)
        return valid_version(version) + 1 if written else None

    def put_if_unchanged(self, pk: object, seen_version: int, **values: object) -> int | None:
        """Create the row (``seen_version`` 0), or write it if it still has the seen version.

        Returns the new version, or None for a conflict: the row was created, changed or deleted in the meantime (a
        deleted row is never created again). The transaction, if there is one, goes on. Raises ``IntegrityError`` where
        the values break another constraint than the key's.
        """
        if valid_version(seen_version) > 0:
            return self.update_if_unchanged(pk, seen_version, **values)
        pk = primary_key(self.model, pk)
        try:
            # A savepoint: a duplicate key must not break the caller's transaction.
            with translated_errors(model=self.model, pk=pk), transaction.atomic(using=self._alias):
                instance = self.model(pk=pk, **values)
                instance.save(force_insert=True, using=self._alias)
        except IntegrityError:
            # No row with this key: the IntegrityError has another cause than a concurrent insert.
            if current_version(self.model, pk, using=self._alias) is None:
                raise
            return None
        return int(getattr(instance, version_field(self.model).attname))

    def update_many_if_unchanged(self, changes: Iterable[GuardedWrite]) -> list[Any]:
        """Write many rows, each if it still has its version; return the keys of those not written, in the order given.

        Each change is ``(pk, version, values)``. On PostgreSQL all of it is one statement, which locks the rows in
        primary-key order; rows with another version are left unchanged, the others are written. Raises ``ValueError``
        for a duplicate key and for expressions among the values.
        """
        model, using = self.model, self._alias
        with translated_errors(model=model):
            writes = [
                (primary_key(model, pk), valid_version(version), _plain(model, values))
                for pk, version, values in changes
            ]
            if len({pk for pk, _, _ in writes}) != len(writes):
                raise ValueError("a primary key is given twice: only one of its changes could be written")
            if not writes:
                return []
            # One statement cannot guard several tables, and only PostgreSQL has UPDATE ... FROM with RETURNING.
            in_one = connections[using].vendor == "postgresql" and not parents_of(model)
            written = (_in_one_statement if in_one else _one_by_one)(model, writes, using=using)
        return [pk for pk, _, _ in writes if pk not in written]

    async def aupdate_if_unchanged(self, pk: object, version: int, **values: object) -> int | None:
        return await sync_to_async(self.update_if_unchanged)(pk, version, **values)

    async def aput_if_unchanged(self, pk: object, seen_version: int, **values: object) -> int | None:
        return await sync_to_async(self.put_if_unchanged)(pk, seen_version, **values)

    @property
    def _alias(self) -> str:
        """The database that this query set writes to."""
        # Makes self.db ask the router for the write database.
        self._for_write = True
        return self.db


VersionedManager = models.Manager.from_queryset(VersionedQuerySet, "VersionedManager")
"""The manager of versioned models; a project's own manager derives from it or from ``VersionedQuerySet``."""


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
