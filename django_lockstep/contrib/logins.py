"""Session authentication for HTTP APIs; an optional adapter for django-ninja (extra ``api``)."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja.errors import Throttled
from ninja.security import SessionAuth
from ninja.throttling import AnonRateThrottle

__all__ = ["FailedLogins", "SessionUser"]


class FailedLogins(AnonRateThrottle):
    """Limits failed logins of an address; kept in the default cache, like all throttles of django-ninja.

    Create one for each failure: it keeps the request's state between its steps.
    """

    scope = "failed-logins"

    def count(self, request: HttpRequest) -> None:
        """Count one failure. Raises ``Throttled`` if there are too many."""
        if not self.allow_request(request):
            raise Throttled(wait=self.wait())  # type: ignore[arg-type]


class SessionUser(SessionAuth):
    """The logged-in user; unsafe methods need a CSRF token."""

    def __call__(self, request: HttpRequest) -> Any | None:
        """Return the user, or None without a login, which is 401 and not a failed CSRF check."""
        if self.param_name not in request.COOKIES or not request.user.is_authenticated:
            return None
        return super().__call__(request)
