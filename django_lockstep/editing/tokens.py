"""Tokens that tell the tabs of one person apart. Only their digest is stored."""

import hashlib
import hmac
import secrets

__all__ = ["digest_of", "matches", "new_token"]


def new_token() -> str:
    """Return a random token of 256 bits."""
    return secrets.token_urlsafe(32)


def digest_of(token: str) -> str:
    """Return what the database keeps: the token's SHA-256, as 64 hexadecimal digits.

    A plain hash is enough, because the token is random and long: there is nothing to guess.
    """
    return hashlib.sha256(token.encode()).hexdigest()


def matches(token: str, digest: str) -> bool:
    """Whether the token is the one with this digest, compared in constant time."""
    return hmac.compare_digest(digest_of(token), digest)
