"""Tokens that distinguish a user's tabs. Only their digest is stored."""

import hashlib
import hmac
import secrets

from django.utils.crypto import salted_hmac

__all__ = ["digest_of", "matches", "new_token", "pass_of"]


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
    """Whether the token is the one with this digest, compared in constant time."""
    # compare_digest: the time must not reveal how many digits match.
    return hmac.compare_digest(digest_of(token), digest)
