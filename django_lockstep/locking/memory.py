"""What an instance remembers of its row, and what a save of it therefore writes.

It remembers the values and the version it was read with, and whether its last write was committed.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import models
from django.db.models.base import ModelState
from django.db.models.expressions import BaseExpression, Combinable
from django.db.models.fields.files import FieldFile, FileField
from django.db.models.fields.related_descriptors import ForeignKeyDeferredAttribute
from django.db.models.query_utils import DeferredAttribute

from django_lockstep.locking.fields import attnames_of, uncounted_fields, version_field
from django_lockstep.locking.rollbacks import last_write, record_write, set_last_write
from django_lockstep.locking.statements import Column

_MEMORY = "_versioned_memory"
_PARTIAL = "_version_partial"
_SAVING = "_versioned_saving"
_NOT_LOADED = object()
_PLAIN = frozenset({str, int, bool, float, bytes, type(None), Decimal, datetime, date, time, timedelta, UUID})
# These return the instance's value from pre_save(), or is_changed() handles them itself.
_PLAIN_PRE_SAVE = (
    models.Field.pre_save,
    models.DateField.pre_save,
    models.DateTimeField.pre_save,
    models.TimeField.pre_save,
    FileField.pre_save,
)


def is_expression(value: object) -> bool:
    """Whether the value is computed by the database."""
    return isinstance(value, BaseExpression | Combinable)


def remembered(instance: models.Model) -> dict[str, Any]:
    """Return the row's values as the instance last saw them, by attribute name; empty if it never did."""
    memory: Any = getattr(instance._state, _MEMORY, None) or {}
    if type(memory) is tuple:
        memory = dict(zip(_all_attnames(type(instance)), memory, strict=True))
        setattr(instance._state, _MEMORY, memory)
    return memory  # type: ignore[no-any-return]


def remember_row(instance: models.Model, values: Sequence[Any]) -> None:
    """Note the row that the instance was just made from, as ``from_db()`` has it."""
    # Most instances are only read: their row is kept as it is, and becomes a dict with the first comparison.
    if len(values) == _kept_columns(type(instance)):
        setattr(instance._state, _MEMORY, tuple(values))
    else:
        remember(instance)


# CPython keeps the attributes of instances without a dict for each only if the class's first instances had them.
setattr(ModelState(), _MEMORY, None)


@functools.cache
def _kept_columns(model: type[models.Model]) -> int:
    """Return how many columns a whole row has; 0 unless attributes are what it has, and are not changed in place."""
    is_kept = all(
        Column(field).type is not None
        and not hasattr(field, "from_db_value")
        and type(inspect.getattr_static(model, field.attname)) in {DeferredAttribute, ForeignKeyDeferredAttribute}
        for field in model._meta.concrete_fields
    )
    return len(_all_attnames(model)) if is_kept else 0


def remember(instance: models.Model, attnames: Iterable[str] | None = None) -> None:
    """Note that the row now holds the instance's values: those named, or all that are loaded."""
    memory = {} if attnames is None else dict(remembered(instance))
    values = vars(instance)
    for attname in _all_attnames(type(instance)) if attnames is None else attnames:
        value = values.get(attname, _NOT_LOADED)
        if type(value) in _PLAIN:  # the common case first: this runs for every row that is read
            memory[attname] = value
        elif value is _NOT_LOADED or is_expression(value):
            memory.pop(attname, None)
        else:
            memory[attname] = _still(value)
    setattr(instance._state, _MEMORY, memory)


@functools.cache
def _all_attnames(model: type[models.Model]) -> tuple[str, ...]:
    return tuple(attnames_of(model, None))


def adopt(instance: models.Model, current: models.Model) -> None:
    """Note that the row now holds the values that another instance was read with."""
    setattr(instance._state, _MEMORY, dict(remembered(current)))


def apply_written(instance: models.Model, written: Mapping[str, object], *, using: str | None = None) -> None:
    """Put the values that were written into the row into the instance, by attribute name.

    With ``using`` (the database) the instance is refused after a rollback; without it, it was read in the same
    transaction.
    """
    if using is not None and written:
        record_write(instance, using)
    for attname, value in written.items():
        setattr(instance, attname, value)
    remember(instance, written)


def has_changes(instance: models.Model, names: Iterable[str] | None) -> bool:
    """Whether ``save()`` of these fields (None: all) would write something new into a column that counts."""
    fields = _counted_fields(type(instance))
    if names is not None:
        attnames = set(attnames_of(type(instance), names))
        fields = tuple(field for field in fields if field.attname in attnames)
    return any(is_changed(instance, field) for field in fields)


@functools.cache
def _counted_fields(model: type[models.Model]) -> tuple[models.Field[Any, Any], ...]:
    """Return the columns whose change is a new version, first those that are always a change."""
    left_out = {version_field(model), *uncounted_fields(model)}
    fields = [field for field in model._meta.concrete_fields if not field.primary_key and field not in left_out]
    return tuple(sorted(fields, key=lambda field: not getattr(field, "auto_now", False)))


def is_changed(instance: models.Model, field: models.Field[Any, Any]) -> bool:
    """Whether ``save()`` would write something else into the column than it was read with."""
    if field.generated or field.attname not in vars(instance):
        return False
    if getattr(field, "auto_now", False) or type(field).pre_save not in _PLAIN_PRE_SAVE:
        return True  # pre_save() computes a value that is not known yet
    return _is_assigned(instance, field)


def dirty_attnames(instance: models.Model) -> list[str]:
    """Return the attributes that were given another value than the row was read with."""
    fields = [field for field in instance._meta.concrete_fields if not (field.generated or field.primary_key)]
    return [field.attname for field in fields if field.attname in vars(instance) and _is_assigned(instance, field)]


def _is_assigned(instance: models.Model, field: models.Field[Any, Any]) -> bool:
    memory, value = remembered(instance), vars(instance)[field.attname]
    if isinstance(value, FieldFile) and not getattr(value, "_committed", True):
        return True
    return field.attname not in memory or is_expression(value) or bool(memory[field.attname] != _still(value))


def _still(value: object) -> object:
    """Return a copy that later changes of the instance do not affect."""
    if isinstance(value, FieldFile):
        return value.name
    return copy.deepcopy(value) if isinstance(value, list | dict | set | bytearray) else value


@dataclass(slots=True, kw_only=True)
class Saving:
    """A save of an existing row."""

    names: list[str] | None
    """The fields asked for, None for all."""
    counts: bool
    """Whether it raises the version."""

    def columns(self, instance: models.Model, values: list[Any]) -> list[Any]:
        """Return which of one table's columns are written.

        Called after the ``pre_save`` receivers, so that their changes are written. Without a counted change, only
        changed uncounted columns are written, and the version stays. An uncounted column that did not change is left
        out: another transaction may have incremented it in the meantime.
        """
        self.counts = self.counts or has_changes(instance, self.names)
        uncounted = uncounted_fields(type(instance))
        if not uncounted:
            return values if self.counts else []
        return [value for value in values if (is_changed(instance, value[0]) if value[0] in uncounted else self.counts)]


def begin_saving(instance: models.Model, names: list[str] | None, *, force: bool) -> Saving | None:
    """Attach a running save to the instance; return the one before, for `set_saving` after it."""
    before = current_saving(instance)  # a receiver of pre_save may save the instance itself
    # Compared now as well: saving a new file commits it before its column is written, and it then looks unchanged.
    set_saving(instance, Saving(names=names, counts=force or has_changes(instance, names)))
    return before


def set_saving(instance: models.Model, saving: Saving | None) -> None:
    setattr(instance._state, _SAVING, saving)


def current_saving(instance: models.Model) -> Saving | None:
    """Return the running save of the instance; None for an INSERT or a raw save."""
    return getattr(instance._state, _SAVING, None)


def mark_partial(instance: models.Model, partial: bool) -> None:
    """Note whether the version was read later than other values of the instance."""
    setattr(instance._state, _PARTIAL, partial)


def seen_version(instance: models.Model) -> int:
    """Return the version that the instance was read with.

    Raises ``ValueError`` if it never was, and for an instance that a rollback may have undone.
    """
    attname = version_field(type(instance)).attname
    if instance._state.adding or instance.pk is None:
        raise ValueError(f"{instance._meta.label} was never saved, so it has no version to compare")
    if attname not in vars(instance):
        # Reading it now would fetch the newest version, and every stale write would pass.
        raise ValueError(f"{instance._meta.label} {instance.pk!r} was read without its {attname!r} (only or defer)")
    if getattr(instance._state, _PARTIAL, False):
        raise ValueError(
            f"{instance._meta.label} {instance.pk!r} got its {attname!r} later than its other values: "
            "refresh_from_db() reads all of them"
        )
    if getattr(instance, attname) is None:
        raise ValueError(
            f"{instance._meta.label} {instance.pk!r} has None for its {attname!r}, which cannot be compared"
        )
    write = last_write(instance)
    if write is not None and not write.is_pending:
        if not write.is_committed:
            # Another writer could give this version to the row again, and its update would then be lost.
            raise ValueError(
                f"{instance._meta.label} {instance.pk!r} was written in a transaction that was rolled back, or may "
                "have been: refresh_from_db() reads the row again"
            )
        set_last_write(instance, None)
    return int(getattr(instance, attname))
