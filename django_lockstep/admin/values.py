"""Values of fields: as a token carries them, and as a person reads them."""

from __future__ import annotations

import copy
import json
from typing import Any

from django.contrib.admin.utils import display_for_field
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.fields.files import FieldFile

__all__ = ["UNKNOWN", "Unusable", "plain", "python", "shown", "value_of"]

EMPTY = "-"


class _Unknown:
    def __str__(self) -> str:
        return "unknown"


UNKNOWN = _Unknown()
"""What a value was is not known; equal to no value."""


class Unusable(str):
    """What was typed and is no value of the field; equal to no value but itself."""

    __slots__ = ()

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def value_of(field: models.Field[Any, Any], instance: models.Model) -> Any:
    """Return the instance's value, in a form that later changes of the instance do not reach."""
    value = field.value_from_object(instance)
    if isinstance(value, FieldFile):
        return value.name or ""
    return copy.deepcopy(value)


def plain(field: models.Field[Any, Any], instance: models.Model) -> Any:
    """Return the instance's value as JSON holds it."""
    value = field.value_from_object(instance)
    if value is None or isinstance(value, bool | int | str):
        return value
    text = field.value_to_string(instance)
    return text if isinstance(text, str) else json.loads(json.dumps(text, default=str))


def python(field: models.Field[Any, Any], stored: Any) -> Any:
    """Return the value that `plain` stored; `UNKNOWN` if the field can no longer read it."""
    try:
        return field.to_python(stored)
    except (ValidationError, ValueError, TypeError):
        return UNKNOWN


def shown(field: models.Field[Any, Any], value: Any) -> str:
    """Return the value as the admin shows it; a related object by its name."""
    if value is UNKNOWN or isinstance(value, Unusable):
        return str(value)
    if isinstance(field, models.FileField):
        return str(value) or EMPTY
    if isinstance(field, models.ForeignKey) and value is not None:
        found = field.related_model._base_manager.filter(**{field.target_field.attname: value}).first()
        return str(found) if found else f"{value} (deleted)"
    return str(display_for_field(value, field, EMPTY, avoid_link=True)) or EMPTY
