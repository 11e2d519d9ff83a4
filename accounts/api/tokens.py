"""Tokens for programs: signed, with an end, void as soon as the user's password changes. No table needed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core import signing
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare
from ninja.security import HttpBearer

__all__ = ["TokenUser", "make_token", "user_of_token"]

_SALT = "accounts.api.token"
LIFETIME = timedelta(days=30)
"""How long a token is good, from its making."""


def make_token(user: Any) -> str:
    """Return a token with which a program acts as this user, for `LIFETIME` or until his password changes."""
    return signing.dumps([str(user.pk), user.get_session_auth_hash()], salt=_SALT)


def user_of_token(token: str) -> Any | None:
    """Return the active user whose token it is; None for one that is forged, too old or void."""
    try:
        pk, seen = signing.loads(token, salt=_SALT, max_age=LIFETIME)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    user = get_user_model()._default_manager.filter(pk=pk, is_active=True).first()
    current = user is not None and constant_time_compare(seen, user.get_session_auth_hash())
    return user if current else None


class TokenUser(HttpBearer):
    """Whoever sends ``Authorization: Bearer`` with a token of `make_token`."""

    def authenticate(self, request: HttpRequest, token: str) -> Any | None:
        """Return the user, and make him the request's."""
        user = user_of_token(token)
        if user is not None:
            request.user = user
        return user
