"""The mixin for models whose writes respect edit locks. Importable without the app being installed."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage
from django.db import models, router

from django_lockstep.checks import EDITING, missing_app


class EditLockedModel(models.Model):
    """A model whose instances are saved and deleted only while no other user has checked out the record or its table.

    Put it before other bases: ``class Seat(EditLockedModel, VersionedModel)``. Each write takes the advisory locks of
    its rows and reads the edit locks in its transaction, its own or the caller's, so that writes and check-outs wait
    for each other. `writing` or the middleware names the writer.

    Query sets, ``bulk_create()`` and raw SQL do not call ``save()``: call `require_editable` before them, or put
    `AddEditGuard` into a migration.
    """

    class Meta:
        abstract = True

    def save(self, *args: object, **kwargs: Any) -> None:
        """Write the instance unless another user has checked it out.

        Raises `EditLocked`, or `EditLockLost` where the writer's own check-out has ended; nothing is written then, and
        the instance keeps its values. ``NotSupportedError`` above READ COMMITTED.
        """
        from django_lockstep.editing.write_checks import checked_write

        with checked_write(self, using=kwargs.get("using") or router.db_for_write(type(self), instance=self)):
            super().save(*args, **kwargs)

    @classmethod
    def check(cls, **kwargs: object) -> list[CheckMessage]:
        """Add a check that the app with the tables of locks is installed."""
        name = f"The EditLockedModel {cls._meta.label}"
        return [*super().check(**kwargs), *missing_app(EDITING, needed_by=name, check_id="lockstep.E024", obj=cls)]

    def update_if_unchanged(self, **values: object) -> bool:
        """Write the values if the row is unchanged; refused as `save` is. For models that are versioned too."""
        from django_lockstep.editing.write_checks import checked_write

        with checked_write(self, using=router.db_for_write(type(self), instance=self)):
            return super().update_if_unchanged(**values)  # type: ignore[misc,no-any-return]

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete the row; refused as `save` is, also for checked-out rows that the deletion cascades to."""
        from django_lockstep.editing.write_checks import checked_deletion

        with checked_deletion(self, using=kwargs.get("using") or router.db_for_write(type(self), instance=self)):
            return super().delete(*args, **kwargs)
