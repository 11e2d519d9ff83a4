"""How long a request may wait for a lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import connections, transaction

from django_lockstep.locking.rows import lock_timeout

__all__ = ["DEFAULT", "bounded_waits"]

DEFAULT = 5.0
"""Seconds: longer than other requests hold locks, short enough not to block the server's threads."""


@contextmanager
def bounded_waits(*, using: str) -> Iterator[None]:
    """Run the block in a transaction in which each wait for a lock ends after ``ACCOUNTS_API_LOCK_TIMEOUT`` seconds.

    Without a limit, one session that keeps a row locked would block all threads of the server. None, and other
    databases than PostgreSQL, mean no limit. Raises `LockNotAvailable`, for which the API returns 503 with
    ``Retry-After``.
    """
    seconds = getattr(settings, "ACCOUNTS_API_LOCK_TIMEOUT", DEFAULT)
    bound = seconds if connections[using].vendor == "postgresql" else None
    # SET LOCAL, not a setting of the session, which would stay with a pooler's connection.
    with transaction.atomic(using=using), lock_timeout(bound, using=using):
        yield
