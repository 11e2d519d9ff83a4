"""Optimistic locking: a version in every row, and writes that happen only while it is the version that was read."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from concurrency.fields import AutoIncVersionField, VersionField
from django.core.exceptions import FieldDoesNotExist
from django.db import models, router, transaction
from django.db.models.expressions import BaseExpression, Combinable

from accounts.locking.errors import translated_errors

__all__ = ["VersionedModel"]


class VersionedModel(models.Model):
    """A model whose rows carry a version: 1 when created, one more with every change.

    ``save()`` is django-concurrency's: it writes only if the row still has the version that was read.
    """

    version = AutoIncVersionField()

    class Meta:
        abstract = True

    def update_if_unchanged(self, **values: Any) -> bool:
        """Write the values if the row still has this instance's version, in one guarded UPDATE.

        On success the instance holds the new values and the next version, and the answer is True. On False somebody was
        faster: nothing was written, the instance is as it was, and the transaction, if there is one, goes on. Values
        may be expressions such as ``Now()``; what they became is read back in the same transaction.

        Fields with ``auto_now`` are set too. No ``save()`` signals are sent. Needs no transaction and no isolation
        level; above READ COMMITTED a stale write raises `SerializationFailure` instead of returning False.

        Raises ``ValueError`` for an unsaved instance, a deferred version, a primary key or a version among the values,
        ``FieldDoesNotExist`` for an unknown name, and the model's ``DoesNotExist`` where the row is gone.
        """
        seen = seen_version(self)
        changes = {**_touched(self), **_python_values(self, values)}
        using = router.db_for_write(type(self), instance=self)
        with translated_errors(model=type(self), pk=self.pk):
            written = _write_if(self, changes, seen=seen, using=using)
            if not written and not _rows(self, using).exists():
                raise type(self).DoesNotExist(f"{self._meta.label} {self.pk!r} was deleted since it was read")
        for name, value in written.items():
            setattr(self, name, value)
        return bool(written)


@functools.cache
def version_field(model: type[models.Model]) -> VersionField:
    """Return the model's version field. Raises ``TypeError`` if it has none."""
    for field in model._meta.concrete_fields:
        if isinstance(field, VersionField):
            return field
    raise TypeError(f"{model._meta.label} has no version field")


def seen_version(instance: models.Model) -> int:
    """Return the version that the instance was read with. Raises ``ValueError`` if it never was."""
    attname = version_field(type(instance)).attname
    if instance._state.adding or instance.pk is None:
        raise ValueError(f"{instance._meta.label} was never saved, so it has no version to compare")
    if attname in instance.get_deferred_fields():
        # Reading it now would fetch the newest version, and every stale write would pass.
        raise ValueError(f"{instance._meta.label} {instance.pk!r} was read without its {attname!r} (only or defer)")
    return int(getattr(instance, attname))


def _python_values(instance: models.Model, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values as their fields hold them, and refuse those that would break the guard."""
    kept = {}
    for name, value in values.items():
        field = _column(instance, name)
        if field == version_field(type(instance)) or field.primary_key:
            raise ValueError(f"{name} identifies the row that was read and cannot be among the values")
        plain = not (_is_expression(value) or field.is_relation)
        kept[name] = field.to_python(value) if plain else value
    return kept


def _column(instance: models.Model, name: str) -> models.Field[Any, Any]:
    """Return the field with a column of its own. Raises ``FieldDoesNotExist`` for any other name."""
    field = instance._meta.get_field(name)
    if not isinstance(field, models.Field) or field.many_to_many:
        raise FieldDoesNotExist(f"{instance._meta.label} has no column for {name!r}")
    return field


def _concrete(model: type[models.Model]) -> type[models.Model]:
    return model._meta.concrete_model or model


def _is_expression(value: object) -> bool:
    return isinstance(value, BaseExpression | Combinable)


def _touched(instance: models.Model) -> dict[str, Any]:
    """Return what ``save()`` would put into the ``auto_now`` fields, and leave the instance as it is."""
    touched = {}
    for field in instance._meta.concrete_fields:
        if getattr(field, "auto_now", False):
            before = dict(vars(instance))
            touched[field.attname] = field.pre_save(instance, add=False)
            vars(instance).clear()
            vars(instance).update(before)
    return touched


def _rows(instance: models.Model, using: str) -> models.QuerySet[models.Model]:
    return type(instance)._base_manager.using(using).filter(pk=instance.pk)


def _write_if(instance: models.Model, changes: dict[str, Any], *, seen: int, using: str) -> dict[str, Any]:
    """Write the changes and the next version where the version is still ``seen``; return them, or nothing at all."""
    version = version_field(type(instance))
    changes = {**changes, version.attname: seen + 1}
    computed = [_column(instance, name).attname for name, value in changes.items() if _is_expression(value)]
    first, *others = _by_table(instance, changes, version)
    several = bool(others or computed)
    block: AbstractContextManager[None] = transaction.atomic(using, savepoint=False) if several else nullcontext()
    with block:
        rows = first[0]._base_manager.using(using).filter(pk=first[1], **{version.attname: seen})
        if not rows.update(**first[2]):
            return {}
        for model, pk, values in others:
            model._base_manager.using(using).filter(pk=pk).update(**values)
        if computed:
            changes |= _rows(instance, using).values(*computed).get()
    return changes


def _by_table(
    instance: models.Model, changes: dict[str, Any], version: VersionField
) -> list[tuple[type[models.Model], Any, dict[str, Any]]]:
    """Split the changes by the table that holds them, the version's table first.

    ``update()`` of a model that inherits from another table writes the parent's row by its key alone; the guard has to
    stand in the UPDATE of the version's own table.
    """
    tables: dict[type[models.Model], dict[str, Any]] = {version.model: {}}
    for name, value in changes.items():
        tables.setdefault(_column(instance, name).model, {})[name] = value
    return [(model, _pk_in(instance, model), values) for model, values in tables.items()]


def _pk_in(instance: models.Model, model: type[models.Model]) -> Any:
    link = _concrete(type(instance))._meta.get_ancestor_link(model)
    return getattr(instance, link.attname) if link else instance.pk
