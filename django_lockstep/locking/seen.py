"""The version that an instance was read with."""

from __future__ import annotations

from django.db import models

from django_lockstep.locking.fields import version_field
from django_lockstep.locking.rollbacks import settle

__all__ = ["mark_partial", "seen_version"]

_PARTIAL = "_version_partial"


def mark_partial(instance: models.Model, partial: bool) -> None:
    """Note whether the version was read later than other values of the instance."""
    setattr(instance._state, _PARTIAL, partial)


def seen_version(instance: models.Model) -> int:
    """Return the version that the instance was read with. Raises ``ValueError`` if it never was."""
    settle(instance)
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
            f"{instance._meta.label} {instance.pk!r} has None for its {attname!r}, which compares with none"
        )
    return int(getattr(instance, attname))
