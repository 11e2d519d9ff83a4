"""Who a program acts for: a token of `accounts.tokens.ApiToken`, in the header ``Authorization``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest
from ninja.errors import HttpError
from ninja.security import HttpBearer

from accounts.tokens import SCOPES
from django_lockstep.contrib.logins import FailedLogins
from django_lockstep.locking.durations import Duration

if TYPE_CHECKING:
    from accounts.models import ApiToken

__all__ = ["TokenUser", "has_scope", "make_token", "require_scope"]


def make_token(user: Any, *, scopes: Iterable[str] = SCOPES, name: str = "", age: Duration | None = None) -> str:
    """Return a token with which a program acts as this user; see `accounts.tokens.ApiToken.issue`."""
    from accounts.models import ApiToken

    return ApiToken.issue(user, scopes=scopes, name=name, age=age)[1]


class TokenUser(HttpBearer):
    """Whoever sends ``Authorization: Bearer`` with a token of `make_token`.

    ``failures`` is how many tokens that are none are looked up for one address, as django-ninja writes rates; what is
    more is 429. Tokens that are good pass all the same: 256 bits are not guessed.
    """

    def __init__(self, *, failures: str = "30/m") -> None:
        super().__init__()
        self._failures = failures

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken | None:
        """Return the token, and make its user the request's."""
        from accounts.models import ApiToken

        found = ApiToken.find(token)
        if found is None:
            FailedLogins(self._failures).count(request)
            return None
        found.record_use()
        request.user = found.user
        return found


def has_scope(request: HttpRequest, scope: str) -> bool:
    """Whether what let the request in is good for this; what has no ``scopes``, such as a session, is for all."""
    scopes = getattr(getattr(request, "auth", None), "scopes", None)
    return scopes is None or scope in scopes.split()


def require_scope(request: HttpRequest, scope: str) -> None:
    """Raise ``HttpError`` 403 unless the request `has_scope`."""
    if not has_scope(request, scope):
        raise HttpError(403, f"The token has not the scope {scope}")
