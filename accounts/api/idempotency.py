"""The header ``Idempotency-Key``: an operation that is sent twice is done once.

After the IETF's draft "The Idempotency-Key HTTP Header Field". The key is kept with the entry that the operation wrote,
in the same transaction: there is no moment at which the money has moved and the key is unknown. What changed nothing
leaves no key, so that it is simply tried again.
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
"""A string as structured fields have it (RFC 9651, section 3.3.3)."""


def idempotency_key(request: HttpRequest) -> str | None:
    """Return the request's key, with or without the quotes that the draft demands; None if it sends none.

    Raises ``HttpError`` 400 for one that is empty, longer than 255 characters or not printable ASCII, and for quotes
    that make no string.
    """
    header = request.headers.get("Idempotency-Key")
    if header is None:
        return None
    key = _unquoted(header) if '"' in header else header
    if not (0 < len(key) <= _LONGEST and key.isascii() and key.isprintable()):
        raise HttpError(400, f"Idempotency-Key has 1 to {_LONGEST} printable ASCII characters, in quotes or without")
    return key


def _unquoted(header: str) -> str:
    """Return what stands between the quotes; nothing where they make no string."""
    quoted = _QUOTED.fullmatch(header)
    return re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else ""


@contextmanager
def one_at_a_time(key: str | None, *, scope: str, using: str) -> Iterator[None]:
    """Run the block in a transaction with `bounded_waits`, and not while another request with this key is in progress.

    A transaction-level advisory lock on scope and key, tried without waiting; none on other databases than PostgreSQL,
    where the second request waits for the account instead. Raises ``HttpError`` 409.
    """
    with bounded_waits(using=using):
        if key is not None and connections[using].vendor == "postgresql":
            with connections[using].cursor() as cursor:
                name = f"accounts.api:{scope}\n{key}"
                cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [name])
                if not cursor.fetchone()[0]:
                    raise HttpError(409, "A request with this Idempotency-Key is in progress. Ask again later.")
        yield
