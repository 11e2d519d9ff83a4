"""The header ``Idempotency-Key``: a repeated request is performed only once.

After the IETF's draft "The Idempotency-Key HTTP Header Field". The key is stored in the entry of the operation, in the
same transaction, so that money never moves without it. A refused operation stores no key, and can be retried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections
from django.http import HttpRequest
from ninja.errors import HttpError

from accounts.api.limits import bounded_waits

__all__ = ["idempotency_key", "one_at_a_time"]

_LONGEST = 255
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"')
"""A string in the syntax of structured fields (RFC 9651, section 3.3.3)."""


def idempotency_key(request: HttpRequest) -> str | None:
    """Return the request's key, with or without the quotes that the draft requires; None without the header.

    Raises ``HttpError`` 400 for a key that is empty, longer than 255 characters or not printable ASCII, and for
    incorrect quotes.
    """
    header = request.headers.get("Idempotency-Key")
    if header is None:
        return None
    key = _unquoted(header) if '"' in header else header
    if not (0 < len(key) <= _LONGEST and key.isascii() and key.isprintable()):
        raise HttpError(400, f"Idempotency-Key must have 1 to {_LONGEST} printable ASCII characters, optionally quoted")
    return key


def _unquoted(header: str) -> str:
    """Return the quoted string; an empty one where the quotes are incorrect."""
    quoted = _QUOTED.fullmatch(header)
    return re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else ""


@contextmanager
def one_at_a_time(key: str | None, *, scope: str, using: str) -> Iterator[None]:
    """Run the block in a transaction with `bounded_waits`, unless another request with this key is in progress.

    Tries a transaction-level advisory lock on scope and key; raises ``HttpError`` 409 if another session has it. On
    other databases than PostgreSQL the second request waits for the account instead.
    """
    with bounded_waits(using=using):
        if key is not None and connections[using].vendor == "postgresql":
            with connections[using].cursor() as cursor:
                name = f"accounts.api:{scope}\n{key}"
                # Tried, not awaited: the draft asks for 409 while the first request is in progress, and a client that
                # retries early must not tie up another thread.
                cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [name])
                if not cursor.fetchone()[0]:
                    raise HttpError(409, "A request with this Idempotency-Key is in progress. Retry later.")
        yield
