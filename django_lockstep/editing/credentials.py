"""Bearer tokens of the HTTP API: signed, with an expiry, and invalid once the password changes."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core import signing
from django.utils.crypto import constant_time_compare

from django_lockstep.editing.conf import api_authenticator, api_token_age

__all__ = ["authenticate", "issue", "user_of"]

_SALT = "lockstep.editing.api"


def authenticate(request: Any, token: str) -> Any:
    """Return the active user of a bearer token, who becomes ``request.user``; None for an invalid token.

    Tokens are those of ``LOCKSTEP_EDIT_API_AUTHENTICATOR`` where a project has one, otherwise those of `issue`.
    """
    find = api_authenticator()
    user = find(request, token) if find else user_of(token)
    if user is None or not user.is_active:
        return None
    request.user = user
    return user


def issue(user: Any) -> str:
    """Return a token with which requests act for the user, for ``LOCKSTEP_EDIT_API_TOKEN_AGE``."""
    return signing.dumps([str(user.pk), _proof(user)], salt=_SALT)


def user_of(token: str) -> Any:
    """Return the active user that the token was issued to; None for an invalid token."""
    try:
        pk, proof = signing.loads(token, salt=_SALT, max_age=api_token_age())
    except (signing.BadSignature, ValueError):
        return None
    user = get_user_model()._default_manager.filter(pk=pk, is_active=True).first()
    return user if user is not None and constant_time_compare(proof, _proof(user)) else None


def _proof(user: Any) -> str:
    """Return a digest that changes with the password and does not reveal it."""
    # Django's session hash: it changes with the password, which revokes all tokens.
    return str(user.get_session_auth_hash())
