"""Who is logged in, for HTTP APIs; an optional adapter for django-ninja (extra ``api``)."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja.security import SessionAuth

__all__ = ["SessionUser"]


class SessionUser(SessionAuth):
    """Whoever is logged in; what changes something needs a CSRF token."""

    def __call__(self, request: HttpRequest) -> Any | None:
        """Return the user, or None where nobody is logged in: that is 401, not a failed CSRF check."""
        if self.param_name not in request.COOKIES or not request.user.is_authenticated:
            return None
        return super().__call__(request)
