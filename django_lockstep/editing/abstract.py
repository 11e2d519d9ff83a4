"""The mixin for models whose writes obey edit locks. Importable without the app being installed."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage
from django.db import models, router

from django_lockstep.checks import EDITING, missing_app

__all__ = ["EditLockedModel"]


class EditLockedModel(models.Model):
    """A model whose instances are saved and deleted only while nobody else has checked out the record or its table.

    Put it before other bases: ``class Seat(EditLockedModel, VersionedModel)``. Each write takes the guards of its rows
    and looks at the locks in the transaction that it writes in, its own or the caller's, so that a check-out waits for
    it and it waits for a check-out. Who is writing is what `writing` or the middleware says.

    Query sets, ``bulk_create()`` and raw SQL call no ``save()``: put a `fence` before them, or `AddEditGuard` into a
    migration.
    """

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write the instance; as the next base otherwise.

        Raises `EditLocked`, or `EditLockLost` where the writer's own check-out has ended; nothing was written then, and
        the instance keeps its values. ``NotSupportedError`` above READ COMMITTED.
        """
        from django_lockstep.editing.fences import fenced

        with fenced(self, using=kwargs.get("using") or router.db_for_write(type(self), instance=self)):
            super().save(*args, **kwargs)

    @classmethod
    def check(cls, **kwargs: Any) -> list[CheckMessage]:
        """Add to Django's own checks that the tables of locks are there."""
        return [
            *super().check(**kwargs),
            *missing_app(
                EDITING, needed_by=f"The EditLockedModel {cls._meta.label}", check_id="lockstep.E024", obj=cls
            ),
        ]

    def update_if_unchanged(self, **values: Any) -> bool:
        """Write the values if the row is as it was read; refused as a `save` is. For models that are versioned too."""
        from django_lockstep.editing.fences import fenced

        with fenced(self, using=router.db_for_write(type(self), instance=self)):
            written: bool = super().update_if_unchanged(**values)  # type: ignore[misc]
        return written

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete the row; refused as a `save` is, also for what somebody else has of that which is deleted along."""
        from django_lockstep.editing.fences import fenced_deletion

        with fenced_deletion(self, using=kwargs.get("using") or router.db_for_write(type(self), instance=self)):
            return super().delete(*args, **kwargs)
