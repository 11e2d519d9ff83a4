"""Guarded writes: UPDATEs that take effect only while the row has the version that was read."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db import connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_lockstep.locking.fields import is_key, tables_of, version_field
from django_lockstep.locking.memory import is_expression
from django_lockstep.locking.shapes import compiled_rows


def column(model: type[models.Model], name: str) -> models.Field[Any, Any]:
    """Return the field with a column of its own. Raises ``FieldDoesNotExist`` for any other name."""
    field = model._meta.get_field(name)
    if not isinstance(field, models.Field) or field.many_to_many:
        raise FieldDoesNotExist(f"{model._meta.label} has no column for {name!r}")
    return field


def place_type(field: models.Field[Any, Any], connection: BaseDatabaseWrapper) -> str:
    """Return the type for a cast to the column: without a length, because a cast with one truncates silently."""
    return re.sub(r"\(\d+(, *\d+)?\)", "", str(field.cast_db_type(connection)))


def python_values(model: type[models.Model], values: dict[str, Any]) -> dict[str, Any]:
    """Return the values converted by their fields. Raises ``ValueError`` for a primary key or a version."""
    converted = {}
    for name, value in values.items():
        field = column(model, name)
        if field == version_field(model) or is_key(model, field):
            raise ValueError(f"{name} identifies the row that was read and cannot be among the values")
        converted[name] = value if is_expression(value) or field.is_relation else field.to_python(value)
    return converted


def valid_version(version: int) -> int:
    """Return the version. Raises ``ValueError`` for what no row that can be written has."""
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version < _MAX_VERSION:
        raise ValueError(f"a version must be an integer from 0 to {_MAX_VERSION - 1}, not {version!r}")
    return version


_MAX_VERSION = 2**63 - 1
"""What a bigint can hold, and so the version of a row that cannot be written again."""


def auto_now_values(model: type[models.Model]) -> dict[str, Any]:
    """Return the values that ``save()`` would put into the ``auto_now`` fields."""
    # Without __init__(): no defaults are computed and no signals are sent for a throwaway instance.
    scratch = models.Model.__new__(model)
    return {field.attname: field.pre_save(scratch, add=False) for field in auto_now_fields(model)}


@functools.cache
def auto_now_fields(model: type[models.Model]) -> tuple[models.Field[Any, Any], ...]:
    """Return the fields that every write sets to the current time."""
    return tuple(field for field in model._meta.concrete_fields if getattr(field, "auto_now", False))


def current_version(model: type[models.Model], pk: object, *, using: str) -> int | None:
    """Return the row's current version, None without a row."""
    rows = model._base_manager.using(using).filter(pk=pk)
    return rows.values_list(version_field(model).attname, flat=True).first()


def write_if(model: type[models.Model], pk: object, values: dict[str, Any], *, seen: int, using: str) -> dict[str, Any]:
    """Write the values and the next version where the version is still ``seen``; return the written values.

    Empty if nothing was written. Results of expressions are read back while the UPDATE's row lock is held.
    """
    version = version_field(model)
    changes = {**auto_now_values(model), **values, version.attname: seen + 1}
    computed = [column(model, name).attname for name, value in changes.items() if is_expression(value)]
    (owner, guarded), *rest = _by_table(model, changes, version.model)
    several = bool(rest or computed)
    block: AbstractContextManager[None] = transaction.atomic(using, savepoint=False) if several else nullcontext()
    with block:
        _lock_earlier(model, pk, [table for table, _ in rest], using=using)
        # One UPDATE compares and writes: a SELECT before it would leave a gap in which the row can change.
        if not _rows(owner, model, pk, using=using).filter(**{version.attname: seen}).update(**guarded):
            return {}
        with version_kept(using) if rest else nullcontext():
            for table, assignments in rest:
                _rows(table, model, pk, using=using).update(**assignments)
        # The row is still locked by our UPDATE, so these are the values that it wrote.
        if computed:
            changes |= model._base_manager.using(using).filter(pk=pk).values(*computed).get()
    return changes


def _lock_earlier(model: type[models.Model], pk: object, tables: list[type[models.Model]], *, using: str) -> None:
    """Lock the rows that ``save()`` writes before the version's: in the opposite order the two would deadlock."""
    order = tables_of(model)
    # The strength of the UPDATE that follows, so that referring rows can still be inserted.
    no_key = connections[using].features.has_select_for_no_key_update
    for owner in order[: order.index(version_field(model).model)]:
        if owner in tables:
            list(_rows(owner, model, pk, using=using).select_for_update(no_key=no_key).values_list("pk"))


def row_of(model: type[models.Model], pk: object, *, using: str) -> models.QuerySet[Any]:
    """Return the row with this key in the table that holds the version, also for a model that inherits it.

    An ``update()`` of a child's query set writes its parent's row by the key alone, so the comparison of versions must
    be in a query set of the parent.
    """
    return _rows(version_field(model).model, model, pk, using=using)


def _by_table(
    model: type[models.Model], changes: dict[str, Any], first: type[models.Model]
) -> list[tuple[type[models.Model], dict[str, Any]]]:
    """Split the changes by the model whose table holds them: the version's table, then the others as ``save()`` goes.

    ``update()`` of a model that inherits from another table writes the parent's row by its key alone; the comparison
    must be in the UPDATE of the version's own table.
    """
    order = [first, *(owner for owner in tables_of(model) if owner is not first)]
    tables: dict[type[models.Model], dict[str, Any]] = {owner: {} for owner in order}
    for name, value in changes.items():
        tables[column(model, name).model][name] = value
    return [(owner, values) for owner, values in tables.items() if values]


def _rows(owner: type[models.Model], model: type[models.Model], pk: object, *, using: str) -> models.QuerySet[Any]:
    """Return the row of ``owner``'s table that belongs to the model's object with this key."""
    link = (model._meta.concrete_model or model)._meta.get_ancestor_link(owner)
    # A parent link that is the primary key shares its value; any other link must be looked up.
    if link is None or link.primary_key:
        return compiled_rows(owner._base_manager, using).filter(pk=pk)
    linked = model._base_manager.using(using).filter(pk=pk).values(link.attname)
    return owner._base_manager.using(using).filter(pk__in=linked)


@contextmanager
def version_kept(using: str) -> Iterator[None]:
    """Turn off the version guards of inherited tables in the block: this writer raises the version itself."""
    # Only PostgreSQL has triggers of ours that would count this write twice.
    if connections[using].vendor != "postgresql":
        yield
        return
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT set_config(%s, 'on', true)", [VERSION_KEPT])
        yield
        cursor.execute("SELECT set_config(%s, '', true)", [VERSION_KEPT])


VERSION_KEPT = "lockstep.version_kept"
"""PostgreSQL parameter, local to a transaction: the guard on a table without the version then does nothing."""
