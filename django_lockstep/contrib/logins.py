"""Who is logged in, for HTTP APIs; an optional adapter for django-ninja (extra ``api``)."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja.errors import Throttled
from ninja.security import SessionAuth
from ninja.throttling import AnonRateThrottle

__all__ = ["FailedLogins", "SessionUser"]


class FailedLogins(AnonRateThrottle):
    """How often an address may fail; kept in the default cache, as all throttles of django-ninja are.

    Make one for each failure: it remembers the request between two of its steps.
    """

    scope = "failed-logins"

    def count(self, request: HttpRequest) -> None:
        """Count one failure. Raises ``Throttled`` where there are too many by now."""
        if not self.allow_request(request):
            raise Throttled(wait=self.wait())  # type: ignore[arg-type]


class SessionUser(SessionAuth):
    """Whoever is logged in; what changes something needs a CSRF token."""

    def __call__(self, request: HttpRequest) -> Any | None:
        """Return the user, or None where nobody is logged in: that is 401, not a failed CSRF check."""
        if self.param_name not in request.COOKIES or not request.user.is_authenticated:
            return None
        return super().__call__(request)
