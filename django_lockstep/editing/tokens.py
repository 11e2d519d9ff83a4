"""Tokens: of check-outs, which distinguish a user's tabs, and of the users of the APIs.

Of a check-out's token only the digest is stored. Bearer tokens are signed, have an expiry, and are invalid once the
password changes.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core import signing
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.module_loading import import_string

from django_lockstep.editing.conf import duration

_SALT = "lockstep.editing.api"


def new_token() -> str:
    """Return a random token of 256 bits."""
    return secrets.token_urlsafe(32)


def digest_of(token: str) -> str:
    """Return the stored form of a token: its SHA-256, as 64 hexadecimal digits.

    A plain hash is enough, because the token is long and random and cannot be guessed.
    """
    return hashlib.sha256(token.encode()).hexdigest()


def pass_of(digest: str) -> str:
    """Return the proof of a check-out that Django passes to `AddEditGuard` for a writer without a token.

    Made with the ``SECRET_KEY``; the database only has its digest, from which it cannot be computed.
    """
    return salted_hmac("lockstep.editing.pass", digest, algorithm="sha256").hexdigest()


def matches(token: str, digest: str) -> bool:
    """Whether the token is the one with this digest; the time that it takes does not reveal how many digits match."""
    return constant_time_compare(digest_of(token), digest)


def authenticate(request: Any, token: str) -> Any:
    """Return the active user of a bearer token, who becomes ``request.user``; None for an invalid token.

    Tokens are those of ``LOCKSTEP_EDIT_API_AUTHENTICATOR`` where a project has one, otherwise those of `issue`.
    """
    path = getattr(settings, "LOCKSTEP_EDIT_API_AUTHENTICATOR", None)
    user = import_string(path)(request, token) if path else user_of(token)
    if user is None or not user.is_active:
        return None
    request.user = user
    return user


def issue(user: Any) -> str:
    """Return a token with which requests act for the user, for ``LOCKSTEP_EDIT_API_TOKEN_AGE``."""
    return signing.dumps([str(user.pk), user.get_session_auth_hash()], salt=_SALT)


def user_of(token: str) -> Any:
    """Return the active user that the token was issued to; None for an invalid token."""
    try:
        pk, proof = signing.loads(token, salt=_SALT, max_age=duration("LOCKSTEP_EDIT_API_TOKEN_AGE"))
    except (signing.BadSignature, ValueError):
        return None
    user = get_user_model()._default_manager.filter(pk=pk, is_active=True).first()
    # Django's session hash changes with the password, which revokes all tokens.
    return user if user is not None and constant_time_compare(proof, user.get_session_auth_hash()) else None
