"""What an instance remembers of its row: the values it was read with, and what to forget if a transaction fails."""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connections, models, transaction
from django.db.models.expressions import BaseExpression, Combinable
from django.db.models.fields.files import FieldFile, FileField

from django_lockstep.locking.fields import attnames_of, version_field

__all__ = [
    "adopt",
    "has_changes",
    "is_expression",
    "remember",
    "remembered",
    "take_over",
    "undo_on_rollback",
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


def take_over(instance: models.Model, written: Mapping[str, Any], *, undo: _UntilCommit | None = None) -> None:
    """Put into the instance what was written into its row, by attribute name; ``undo`` takes it out again."""
    if undo is not None:
        undo.note(written)
    for attname, value in written.items():
        setattr(instance, attname, value)
    remember(instance, written)


def has_changes(instance: models.Model, names: Iterable[str] | None) -> bool:
    """Whether ``save()`` of these fields (None: all) would write something else than the row was read with."""
    memory, asked = remembered(instance), set(attnames_of(type(instance), names))
    version = version_field(type(instance))
    return any(
        field.attname in asked and not field.primary_key and field != version and _differs(instance, field, memory)
        for field in instance._meta.concrete_fields
    )


def _differs(instance: models.Model, field: models.Field[Any, Any], memory: dict[str, Any]) -> bool:
    if field.generated or field.attname not in vars(instance):
        return False
    if getattr(field, "auto_now", False) or type(field).pre_save not in _PLAIN_PRE_SAVE:
        return True  # saving gives it a value that nobody can know before
    value = vars(instance)[field.attname]
    if isinstance(value, FieldFile) and not getattr(value, "_committed", True):
        return True
    return field.attname not in memory or is_expression(value) or bool(memory[field.attname] != _still(value))


def _still(value: Any) -> Any:
    """Return the value in a form that later changes of the instance do not reach."""
    if isinstance(value, FieldFile):
        return value.name
    return copy.deepcopy(value) if isinstance(value, list | dict | set | bytearray) else value


class _UntilCommit:
    """Takes an instance back to what it was, unless it is called before it is forgotten.

    Django has no hook for rollbacks, but a rollback, of the transaction or of the savepoint, is when it drops an
    ``on_commit`` callback without calling it; nothing else refers to this object for long.
    """

    def __init__(self, instance: models.Model) -> None:
        self._instance = weakref.ref(instance)
        self._attname = version_field(type(instance)).attname
        self._before = (getattr(instance, self._attname), instance._state.adding, remembered(instance))
        self._values: dict[str, Any] = {}
        self._committed = False

    def note(self, attnames: Iterable[str]) -> None:
        """Take these back as well, to what they are now, where nobody else gives them a value until then."""
        instance = self._instance()
        self._values = {name: vars(instance)[name] for name in attnames if name in vars(instance)}

    def __call__(self) -> None:
        self._committed = True

    def __del__(self) -> None:
        instance = self._instance()
        if self._committed or instance is None:
            return
        version, adding, memory = self._before
        # The earliest of several changes has the lowest version, in whatever order they are forgotten.
        if vars(instance).get(self._attname, 0) > version:
            for attname in self._values.keys() - _changed_since(instance):
                setattr(instance, attname, self._values[attname])
            setattr(instance, self._attname, version)
            setattr(instance._state, _MEMORY, memory)
            instance._state.adding = adding


def _changed_since(instance: models.Model) -> set[str]:
    """Return the attributes that hold something else than the row did when the instance last saw it."""
    memory, values = remembered(instance), vars(instance)
    return {attname for attname, value in memory.items() if attname not in values or value != _still(values[attname])}


def undo_on_rollback(instance: models.Model, using: str) -> _UntilCommit | None:
    """Call it before a write: if that is rolled back, the instance gets its version and its memory back.

    What the write itself puts into the instance is for `take_over`, which is given the answer.
    """
    if not connections[using].in_atomic_block:
        return None
    undo = _UntilCommit(instance)
    transaction.on_commit(undo, using=using)
    return undo
