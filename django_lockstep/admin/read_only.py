"""Mixins for the admin of rows that only an app's own operations write; the admin does not have to be installed."""

from __future__ import annotations

from django.db.models import Model
from django.http import HttpRequest


class Final:
    """For a ``ModelAdmin`` or an inline, before it among the bases: forms neither change nor delete rows."""

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class ReadOnly(Final):
    """Like `Final`, and forms add no rows either; the view permission still applies."""

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False
