"""What a page was made from: the object's version and values, signed, so that they cannot be forged."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Self

from django.apps import apps
from django.core import signing
from django.db import models, router
from django.utils import timezone
from django.utils.crypto import salted_hmac

from django_lockstep.admin.values import UNKNOWN, to_json_value, to_python_value
from django_lockstep.locking.fields import version_field

FIELD = "_seen"
"""The name of the tokens' form field."""

_SALT = "lockstep.admin.seen"


def version_name(model: type[models.Model]) -> str:
    return str(version_field(model).name)


def version_of(instance: models.Model) -> int:
    return int(getattr(instance, version_field(type(instance)).attname))


def merged_fields(model: type[models.Model], names: Iterable[str] | None = None) -> list[models.Field[Any, Any]]:
    """Return the model's editable columns with these names (None: all), which a merge compares."""
    selection = None if names is None else set(names)
    version = version_field(model)
    return [
        field
        for field in model._meta.concrete_fields
        if field != version
        and not field.primary_key
        and field.editable
        and (selection is None or field.name in selection)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An object as a page showed it."""

    label: str
    """The model, as ``app_label.ModelName``."""
    pk: str
    """The primary key, as a string."""
    version: int
    """The version; 0 if the shown version is unknown."""
    base: dict[str, Any]
    """The values of editable fields by name, as JSON."""
    at: str
    """When the page was made, in ISO 8601; for a conflict page, the time of the first page."""
    since: int
    """The version of ``base``; it stays the same through any number of conflict pages."""
    digested: bool = False
    """Whether ``base`` holds digests instead of values, which must not appear in URLs."""

    @classmethod
    def of(cls, instance: models.Model, names: Iterable[str] | None = ()) -> Self:
        """Return the state of the instance that a page with these fields (None: all) shows."""
        fields = merged_fields(type(instance), names)
        version = version_of(instance)
        base = {field.name: to_json_value(field, instance) for field in fields}
        return cls._about(instance, version=version, since=version, base=base)

    @classmethod
    def unknown(cls, instance: models.Model) -> Self:
        """Return the token of a page whose shown values are unknown."""
        return cls._about(instance, version=0, since=0, base={})

    @classmethod
    def _about(cls, instance: models.Model, **values: Any) -> Self:
        label = _concrete(type(instance))._meta.label
        return cls(label=label, pk=str(instance.pk), at=timezone.now().isoformat(), **values)

    @classmethod
    def read(cls, text: str, model: type[models.Model]) -> Self | None:
        """Return the content of a token; None if it is not valid or is for another model."""
        try:
            seen = cls(**signing.loads(text, salt=_SALT))
        # TypeError: a token of an older release may lack a field.
        except (signing.BadSignature, TypeError, ValueError):
            return None
        return seen if seen.label == _concrete(model)._meta.label else None

    def sign(self) -> str:
        # Signed, not encrypted: the values were on the page anyway.
        return signing.dumps(asdict(self), salt=_SALT, compress=True)

    def without_values(self) -> Self:
        """Return a copy with digests: enough to find the changed fields, but not their values."""
        if self.digested:
            return self
        return replace(self, digested=True, base={name: _digest(value) for name, value in self.base.items()})

    def moved_to(self, now: Seen) -> Seen:
        """Return the token of a conflict page: the state of ``now`` with the base of this token."""
        return replace(now, base=self.base, since=self.since, at=self.at)

    def is_about(self, instance: models.Model) -> bool:
        """Whether the token is for this object."""
        return self.pk == str(instance.pk)

    def is_gone(self) -> bool:
        """Whether the object's row is deleted, and not only hidden from the user."""
        model = apps.get_model(self.label)
        return not model._base_manager.using(router.db_for_write(model)).filter(pk=self.pk).exists()

    def is_current(self, instance: models.Model) -> bool:
        """Whether the instance has the version that was shown."""
        # Equal, not at least: an older version than the shown one is of a restored backup, or of a row made again.
        return self.version == version_of(instance)

    def base_of(self, field: models.Field[Any, Any], *, now: Seen, theirs: object) -> object:
        """Return the field's value when the page was made; ``theirs`` is its value in the state of ``now``."""
        if field.name not in self.base:
            return UNKNOWN
        stored = self.base[field.name]
        # Some fields do not read back exactly what they stored, so an unchanged one returns the current value.
        return theirs if stored == now.base[field.name] else to_python_value(field, stored)

    @property
    def made_at(self) -> datetime:
        """When the page was made."""
        return datetime.fromisoformat(self.at)


def _digest(value: object) -> str:
    """Return a digest that cannot be computed from a guessed value without the secret key."""
    return salted_hmac(_SALT, json.dumps(value, sort_keys=True), algorithm="sha256").hexdigest()[:12]


def _concrete(model: type[models.Model]) -> type[models.Model]:
    return model._meta.concrete_model or model
