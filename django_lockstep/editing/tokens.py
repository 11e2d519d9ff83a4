"""Tokens that tell the tabs of one person apart. Only their digest is stored."""

import hashlib
import hmac
import secrets

from django.utils.crypto import salted_hmac

__all__ = ["digest_of", "matches", "new_token", "pass_of"]


def new_token() -> str:
    """Return a random token of 256 bits."""
    return secrets.token_urlsafe(32)


def digest_of(token: str) -> str:
    """Return what the database keeps: the token's SHA-256, as 64 hexadecimal digits.

    A plain hash is enough, because the token is random and long: there is nothing to guess.
    """
    return hashlib.sha256(token.encode()).hexdigest()


def pass_of(digest: str) -> str:
    """Return what Django shows to `AddEditGuard` for a writer without a token whose check-out has this digest.

    Made with the ``SECRET_KEY``, so that nobody finds it in the database, which has its digest only.
    """
    return salted_hmac("lockstep.editing.pass", digest, algorithm="sha256").hexdigest()


def matches(token: str, digest: str) -> bool:
    """Whether the token is the one with this digest, compared in constant time."""
    return hmac.compare_digest(digest_of(token), digest)
