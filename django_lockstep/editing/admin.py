"""Read-only admin of check-outs and edit locks. `EditLockAdminMixin` is for the admin of any other model."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from django_lockstep.admin.read_only import ReadOnly
from django_lockstep.editing.model_admin import EditLockAdminMixin
from django_lockstep.editing.models import CheckOut, EditLock

__all__ = ["CheckOutAdmin", "EditLockAdmin", "EditLockAdminMixin"]


def _of(name: str) -> Any:
    """Return the column of a field of the check-out. By its path alone Django would head it in English."""
    field: Any = CheckOut._meta.get_field(name)
    heading = admin.display(description=field.verbose_name, ordering=f"check_out__{name}")
    return heading(lambda lock: getattr(lock.check_out, name, None))


@admin.register(EditLock)
class EditLockAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    """The current locks, expired or not. Only the app's operations write rows."""

    list_display = ("__str__", "status", _of("editor"), "locked_by", _of("since"), _of("expires_at"), _of("note"))
    list_filter = ("status", "model")
    list_select_related = ("check_out__editor",)
    search_fields = ("model", "=object_pk")


@admin.register(CheckOut)
class CheckOutAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    """The log of check-outs and how they ended."""

    list_display = ("target_name", "editor", "since", "expires_at", "ended_at", "ended_how", "ended_by", "note")
    list_filter = ("ended_how", "model")
    list_select_related = ("editor", "ended_by")
    search_fields = ("model", "=object_pk")
    date_hierarchy = "since"
