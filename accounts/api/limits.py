"""How long a request may wait for a lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import connections, transaction

from django_lockstep.locking.rows import lock_timeout

__all__ = ["DEFAULT", "bounded_waits"]

DEFAULT = 5.0
"""Seconds: long for a lock that is held by another request, short for the worker threads that wait for it."""


@contextmanager
def bounded_waits(*, using: str) -> Iterator[None]:
    """Run the block in a transaction in which each wait for a lock ends after ``ACCOUNTS_API_LOCK_TIMEOUT`` seconds.

    Without a bound one session that keeps a row locked keeps every thread of the server that wants it, and so other
    people's requests. None waits without bound; so do other databases than PostgreSQL. Raises `LockNotAvailable`, which
    the API answers with 503 and ``Retry-After``.
    """
    seconds = getattr(settings, "ACCOUNTS_API_LOCK_TIMEOUT", DEFAULT)
    bound = seconds if connections[using].vendor == "postgresql" else None
    # SET LOCAL, not the session's setting: it is also right behind a connection pooler.
    with transaction.atomic(using=using), lock_timeout(bound, using=using):
        yield
