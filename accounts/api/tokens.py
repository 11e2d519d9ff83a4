"""Authentication by a token of `accounts.tokens.ApiToken`, in the header ``Authorization``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from django.contrib.auth.base_user import AbstractBaseUser
from django.http import HttpRequest
from ninja.errors import HttpError
from ninja.security import HttpBearer

from accounts.tokens import SCOPES
from django_lockstep.contrib.logins import FailedLogins
from django_lockstep.locking.durations import Duration

if TYPE_CHECKING:
    from accounts.models import ApiToken

__all__ = ["TokenUser", "has_scope", "make_token", "require_scope"]


def make_token(
    user: AbstractBaseUser, *, scopes: Iterable[str] = SCOPES, name: str = "", age: Duration | None = None
) -> str:
    """Return a token with which a program acts as this user; see `accounts.tokens.ApiToken.issue`."""
    from accounts.models import ApiToken

    return ApiToken.issue(user, scopes=scopes, name=name, age=age)[1]


class TokenUser(HttpBearer):
    """Authenticates ``Authorization: Bearer`` with a token of `make_token`.

    ``failures`` is the rate limit of invalid tokens for one address, in django-ninja's notation; beyond it the response
    is 429. Valid tokens are never limited: 256 bits cannot be guessed.
    """

    def __init__(self, *, failures: str = "30/m") -> None:
        super().__init__()
        self._failures = failures

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken | None:
        """Return the token, and set ``request.user`` to its user."""
        from accounts.models import ApiToken

        found = ApiToken.find(token)
        if found is None:
            # Only failures are counted, so that nobody can lock a program with a valid token out.
            FailedLogins(self._failures).count(request)
            return None
        found.record_use()
        request.user = found.user
        return found


def has_scope(request: HttpRequest, scope: str) -> bool:
    """Whether the request's authentication includes the scope; one without ``scopes``, such as a session, has all."""
    scopes = getattr(getattr(request, "auth", None), "scopes", None)
    return scopes is None or scope in scopes.split()


def require_scope(request: HttpRequest, scope: str) -> None:
    """Raise ``HttpError`` 403 unless the request `has_scope`."""
    if not has_scope(request, scope):
        raise HttpError(403, f"The token does not have the scope {scope}")
