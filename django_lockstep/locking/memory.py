"""What an instance remembers of its row: the values it was read with, and what to forget if a transaction fails."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import models
from django.db.models.expressions import BaseExpression, Combinable
from django.db.models.fields.files import FieldFile, FileField

from django_lockstep.locking.fields import attnames_of, uncounted_fields, version_field
from django_lockstep.locking.rollbacks import Outcome, current_outcome, last_write, note, settle_on_access

__all__ = [
    "adopt",
    "dirty_attnames",
    "has_changes",
    "is_changed",
    "is_expression",
    "note_write",
    "remember",
    "remembered",
    "take_over",
]

_MEMORY = "_versioned_memory"
_NOT_LOADED = object()
_PLAIN = frozenset({str, int, bool, float, bytes, type(None), Decimal, datetime, date, time, timedelta, UUID})
# The pre_save of these gives back what the instance holds, or is asked about below.
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
    """Return the values of the row as the instance last saw it, by attribute name; empty if it never did."""
    memory: dict[str, Any] = getattr(instance._state, _MEMORY, {})
    return memory


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
    """Note that the row now holds what another instance of it was read with."""
    setattr(instance._state, _MEMORY, dict(remembered(current)))


def take_over(instance: models.Model, written: Mapping[str, Any], *, using: str | None = None) -> None:
    """Put into the instance what was written into its row, by attribute name.

    With ``using``, the database, a rollback takes it out again; without, the instance was read in the same transaction.
    """
    if using is not None and written:
        note_write(instance, using, written)
    for attname, value in written.items():
        setattr(instance, attname, value)
    remember(instance, written)


def has_changes(instance: models.Model, names: Iterable[str] | None) -> bool:
    """Whether ``save()`` of these fields (None: all) would write something new into a column that counts."""
    asked = set(attnames_of(type(instance), names))
    left_out = {version_field(type(instance)), *uncounted_fields(type(instance))}
    return any(
        field.attname in asked and not field.primary_key and field not in left_out and is_changed(instance, field)
        for field in instance._meta.concrete_fields
    )


def is_changed(instance: models.Model, field: models.Field[Any, Any]) -> bool:
    """Whether ``save()`` would write something else into the column than it was read with."""
    if field.generated or field.attname not in vars(instance):
        return False
    if getattr(field, "auto_now", False) or type(field).pre_save not in _PLAIN_PRE_SAVE:
        return True  # saving gives it a value that nobody can know before
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


def _still(value: Any) -> Any:
    """Return the value in a form that later changes of the instance do not reach."""
    if isinstance(value, FieldFile):
        return value.name
    return copy.deepcopy(value) if isinstance(value, list | dict | set | bytearray) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write:
    """What an instance was before a write inside a transaction, or several with the same outcome."""

    earlier: _Write | None
    outcome: Outcome
    version: int
    adding: bool
    memory: dict[str, Any]
    values: dict[str, Any]
    """What the write itself replaced in the instance, by attribute name."""

    def take_back(self, instance: models.Model) -> None:
        """Make the instance what it was; attributes that were given another value since the write keep it."""
        attname = version_field(type(instance)).attname
        if vars(instance).get(attname, 0) <= self.version:
            return
        for name in self.values.keys() - _changed_since(instance, self.values):
            setattr(instance, name, self.values[name])
        setattr(instance, attname, self.version)
        setattr(instance._state, _MEMORY, self.memory)
        instance._state.adding = self.adding

    def __deepcopy__(self, memo: object) -> _Write:
        return self  # a copy of the instance shares the outcome

    def __reduce__(self) -> tuple[Any, ...]:
        return _no_write, ()  # another process cannot know the outcome


def _no_write() -> None:
    return None


def _changed_since(instance: models.Model, attnames: Iterable[str]) -> set[str]:
    """Return which of these attributes hold something else than the row did when the instance last saw it."""
    memory, values = remembered(instance), vars(instance)
    return {
        name for name in attnames if name in memory and (name not in values or memory[name] != _still(values[name]))
    }


def note_write(instance: models.Model, using: str, attnames: Iterable[str] = ()) -> None:
    """Call it before the instance follows a write: if that is rolled back, it gets its version and its memory back.

    The attributes named are those that get what was written, and are taken back as well.
    """
    last: _Write | None = last_write(instance)
    outcome = current_outcome(using)
    if outcome is None:
        return
    values = {name: vars(instance)[name] for name in attnames if name in vars(instance)}
    for name in values:
        # A foreign key is read by two names: that of its column, and that of the object.
        for each in {name, type(instance)._meta.get_field(name).name}:
            settle_on_access(type(instance), each)
    if last is not None and last.outcome is outcome:
        # One record for all writes with one outcome: the first of them knows what to go back to.
        assigned = _changed_since(instance, last.values)
        values |= {name: value for name, value in last.values.items() if name not in assigned}
        note(instance, replace(last, values=values))
        return
    version: int = getattr(instance, version_field(type(instance)).attname)
    note(
        instance,
        _Write(
            earlier=last,
            outcome=outcome,
            version=version,
            adding=instance._state.adding,
            memory=remembered(instance),
            values=values,
        ),
    )
