"""Targets of check-outs: tables (models) and records (primary keys), and their textual form."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db import models, router

from django_lockstep.editing.errors import UnknownRecord, UnknownTable
from django_lockstep.locking.fields import primary_key


@dataclass(frozen=True, slots=True)
class Target:
    """A table (``pk`` is None) or one of its records."""

    model: type[models.Model]
    """The concrete model, never a proxy."""
    pk: Any = None

    @property
    def table(self) -> str:
        """The model's label in lower case, such as ``shop.seat``."""
        return label_of(self.model)

    @property
    def key(self) -> str:
        """The primary key as text; empty for a table."""
        return "" if self.pk is None else key_text(self.model, self.pk)

    @property
    def name(self) -> str:
        """Both in one, such as ``shop.seat`` or ``shop.seat:5``."""
        return f"{self.table}:{self.key}" if self.key else self.table

    def database(self, using: str | None = None) -> str:
        """Return the database: the one given, or where the model is written."""
        return using or router.db_for_write(self.model)


def target_of(what: object) -> Target:
    """Return the target for a model, a saved instance, a model's label or a target.

    Raises `UnknownTable` for anything but a concrete model of this project, `UnknownRecord` for an instance without a
    primary key.
    """
    if isinstance(what, Target):
        return what
    if isinstance(what, models.Model):
        return record(type(what), what.pk)
    if isinstance(what, str):
        try:
            what = apps.get_model(what)
        except (LookupError, ValueError) as error:
            text = f"There is no table {what!r}; a table is named by its model, such as 'shop.Seat'"
            raise UnknownTable(text) from error
    return Target(_concrete(what))


def record(model: type[models.Model], pk: object) -> Target:
    """Return the target for the record with this primary key, which may be given as text.

    Raises `UnknownRecord` for what cannot be a primary key of the model.
    """
    if pk is None or pk == "":
        raise UnknownRecord(f"{model._meta.label} {pk!r} has no primary key and cannot be checked out")
    try:
        # The key as the field's Python type: "5" and 5 are one target, with one advisory lock.
        return Target(_concrete(model), primary_key(model, pk))
    except (ValueError, TypeError) as error:
        raise UnknownRecord(f"{pk!r} cannot be a primary key of {model._meta.label}") from error


def parse_target(label: str, key: str) -> Target:
    """Return the target of a stored label and key."""
    table = target_of(label)
    return record(table.model, key) if key else table


def _concrete(model: object) -> type[models.Model]:
    if not (isinstance(model, type) and issubclass(model, models.Model)):
        raise UnknownTable(f"{model!r} must be a model, an instance or a model's label")
    # A lock on a name without a table would lock nothing, and nobody would notice.
    if model._meta.abstract or model._meta.swapped:
        kind = "abstract" if model._meta.abstract else f"swapped for {model._meta.swapped}"
        raise UnknownTable(f"{model._meta.label} is {kind}: it has no table")
    return model._meta.concrete_model or model


def label_of(model: type[models.Model]) -> str:
    """Return the label that stored locks use for the model."""
    return (model._meta.concrete_model or model)._meta.label_lower


def key_text(model: type[models.Model], pk: object) -> str:
    """Return the primary key as text, the same as PostgreSQL's cast to text; a composite one as a JSON array.

    Raises `UnknownRecord` for keys of bytes, which have no such text form.
    """
    value = primary_key(model, pk)
    parts = value if isinstance(value, tuple) else (value,)
    if any(isinstance(part, bytes | memoryview) for part in parts):
        raise UnknownRecord(f"{model._meta.label} has bytes for a primary key; only its whole table can be checked out")
    texts = [str(part) for part in parts]
    return json.dumps(texts, ensure_ascii=False) if isinstance(value, tuple) else texts[0]
