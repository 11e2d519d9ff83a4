"""What a page was made from: the object's version and values, signed, so that nobody can send another's."""

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

from django_lockstep.admin.values import UNKNOWN, plain, python
from django_lockstep.locking.fields import version_field

__all__ = ["FIELD", "Seen", "merged_fields", "version_name", "version_of"]

FIELD = "_seen"
"""The name under which pages carry tokens."""

_SALT = "lockstep.admin.seen"


def version_name(model: type[models.Model]) -> str:
    """Return the name of the model's version field."""
    return str(version_field(model).name)


def version_of(instance: models.Model) -> int:
    """Return the version that the instance holds."""
    return int(getattr(instance, version_field(type(instance)).attname))


def merged_fields(model: type[models.Model], names: Iterable[str] | None = None) -> list[models.Field[Any, Any]]:
    """Return the model's columns with these names (None: all) that a form can change and a merge compares."""
    wanted = None if names is None else set(names)
    version = version_field(model)
    return [
        field
        for field in model._meta.concrete_fields
        if field != version and not field.primary_key and field.editable and (wanted is None or field.name in wanted)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An object as a page showed it."""

    label: str
    """The model, as ``app_label.ModelName``."""
    pk: str
    """The primary key, as a string."""
    version: int
    """The version; 0 where nobody knows which was shown."""
    base: dict[str, Any]
    """The values by field name, as JSON holds them; those that the page let change."""
    at: str
    """When the page was made, in ISO 8601; of a conflict page, the one that it began with."""
    since: int
    """The version that ``base`` was; it stays the same through any number of conflict pages."""
    digested: bool = False
    """Whether ``base`` holds digests in the place of values, which do not belong into addresses."""

    @classmethod
    def of(cls, instance: models.Model, names: Iterable[str] | None = ()) -> Self:
        """Return what a page with these fields (None: all) shows of the instance."""
        fields = merged_fields(type(instance), names)
        version = version_of(instance)
        base = {field.name: plain(field, instance) for field in fields}
        return cls._about(instance, version=version, since=version, base=base)

    @classmethod
    def unknown(cls, instance: models.Model) -> Self:
        """Return what stands for a page of which nobody knows what it showed."""
        return cls._about(instance, version=0, since=0, base={})

    @classmethod
    def _about(cls, instance: models.Model, **facts: Any) -> Self:
        label = _concrete(type(instance))._meta.label
        return cls(label=label, pk=str(instance.pk), at=timezone.now().isoformat(), **facts)

    @classmethod
    def read(cls, text: str, model: type[models.Model]) -> Self | None:
        """Return what a token says; None if it is none of ours, or about another model."""
        try:
            seen = cls(**signing.loads(text, salt=_SALT))
        except (signing.BadSignature, TypeError, ValueError):
            return None
        return seen if seen.label == _concrete(model)._meta.label else None

    def sign(self) -> str:
        """Return the token."""
        return signing.dumps(asdict(self), salt=_SALT, compress=True)

    def without_values(self) -> Self:
        """Return the same with digests: enough to tell which fields changed, not what they were."""
        if self.digested:
            return self
        return replace(self, digested=True, base={name: _digest(value) for name, value in self.base.items()})

    def moved_to(self, now: Seen) -> Seen:
        """Return what a conflict page is made from: the state of ``now``, over the base that this one began with."""
        return replace(now, base=self.base, since=self.since, at=self.at)

    def is_about(self, instance: models.Model) -> bool:
        """Whether the token was made for this object."""
        return self.pk == str(instance.pk)

    def is_gone(self) -> bool:
        """Whether the object's row is deleted, and not merely out of somebody's sight."""
        model = apps.get_model(self.label)
        return not model._base_manager.using(router.db_for_write(model)).filter(pk=self.pk).exists()

    def is_current(self, instance: models.Model) -> bool:
        """Whether the instance has the version that was shown."""
        return self.version == version_of(instance)

    def base_of(self, field: models.Field[Any, Any], *, now: Seen, theirs: Any) -> Any:
        """Return what the field was when the page was made; ``theirs`` is its value in the state of ``now``."""
        if field.name not in self.base:
            return UNKNOWN
        stored = self.base[field.name]
        # Not every field reads back exactly what it wrote, so that an unchanged one is not compared by value.
        return theirs if stored == now.base[field.name] else python(field, stored)

    @property
    def made_at(self) -> datetime:
        """When the page was made."""
        return datetime.fromisoformat(self.at)


def _digest(value: Any) -> str:
    """Return what nobody without the secret key can make from a guessed value."""
    return salted_hmac(_SALT, json.dumps(value, sort_keys=True), algorithm="sha256").hexdigest()[:12]


def _concrete(model: type[models.Model]) -> type[models.Model]:
    return model._meta.concrete_model or model
