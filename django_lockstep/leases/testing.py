"""For tests of code that uses leases: somebody else takes one, time passes.

Nothing here waits. In Django's ``TestCase``, and with pytest-django's ``db``, leases are acquired in the test's own
transaction and go with it; there, heartbeats are not started.
"""

from __future__ import annotations

from typing import Any

from django.db.models.functions import Now

from django_lockstep.leases.handles import LeaseHandle
from django_lockstep.leases.models import Lease
from django_lockstep.leases.terms import KEPT

__all__ = ["expire", "rob"]

_TRIES = 5
"""How often it is tried: a heartbeat may come right after the expiry."""


def expire(key: str) -> None:
    """Let the lease expire now, as if its ttl had passed for the database; its holder is not told."""
    Lease.objects.filter(key=key).update(expires_at=Now())


def rob(key: str, ttl: float = 60, *, owner: str = "somebody else", data: Any = KEPT) -> LeaseHandle:
    """Take the lease, whoever holds it, as if that one's had expired; return the new holder's handle.

    Raises ``RuntimeError`` where a guard of another session keeps the lease.
    """
    for _ in range(_TRIES):
        expire(key)
        handle = Lease.objects.acquire(key, ttl, owner=owner, data=data)
        if handle is not None:
            return handle
    raise RuntimeError(f"Lease {key!r} could not be robbed: {Lease.objects.holder(key) or 'it is under guard'}")
