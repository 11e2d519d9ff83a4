"""Values of fields: as stored in a token, and as shown to users."""

from __future__ import annotations

import copy
import json
from typing import Any

from django.contrib.admin.utils import display_for_field
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.fields.files import FieldFile
from django.utils.translation import gettext as _

EMPTY = "-"


class _Unknown:
    def __str__(self) -> str:
        return _("unknown")


UNKNOWN = _Unknown()
"""An unknown value; equal to no value."""


class InvalidInput(str):
    """Typed text that is not a valid value of the field; equal only to itself."""

    __slots__ = ()

    __hash__ = object.__hash__

    def __eq__(self, value: object) -> bool:
        return self is value


def value_of(field: models.Field[Any, Any], instance: models.Model) -> object:
    """Return a copy of the instance's value that later changes of the instance do not affect."""
    value = field.value_from_object(instance)
    if isinstance(value, FieldFile):
        return value.name or ""
    # A form assigns to its instance while it is cleaned, also into lists and dictionaries.
    return copy.deepcopy(value)


def to_json_value(field: models.Field[Any, Any], instance: models.Model) -> object:
    """Return the instance's value as JSON stores it."""
    value = field.value_from_object(instance)
    if value is None or isinstance(value, bool | int | str):
        return value
    text = field.value_to_string(instance)
    return text if isinstance(text, str) else json.loads(json.dumps(text, default=str))


def to_python_value(field: models.Field[Any, Any], stored: object) -> object:
    """Return the value that `to_json_value` stored; `UNKNOWN` if the field cannot parse it."""
    try:
        return field.to_python(stored)
    except (ValidationError, ValueError, TypeError):
        return UNKNOWN


def display_value(field: models.Field[Any, Any], value: object) -> str:
    """Return the value as the admin shows it; for a foreign key the related object's name."""
    if value is UNKNOWN or isinstance(value, InvalidInput):
        return str(value)
    if isinstance(field, models.FileField):
        return str(value) or EMPTY
    if isinstance(field, models.ForeignKey) and value is not None:
        related = field.related_model._base_manager.filter(**{field.target_field.attname: value}).first()
        return str(related) if related else _("%(value)s (deleted)") % {"value": value}
    return str(display_for_field(value, field, EMPTY, avoid_link=True)) or EMPTY
