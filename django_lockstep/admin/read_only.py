"""What the admin of rows that only an app's own operations write is made of; needs no admin to be installed."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

__all__ = ["Final", "ReadOnly"]


class Final:
    """For a ``ModelAdmin`` or an inline, named before it: what is there is neither changed nor deleted by forms."""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse."""
        return False


class ReadOnly(Final):
    """The same, and nothing is added by forms either: whoever has the permission to view may look."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse."""
        return False
