"""For tests of code that uses leases: another holder steals one, or time passes.

Nothing here waits. In Django's ``TestCase``, and with pytest-django's ``db``, leases belong to the test's own
transaction and end with it; heartbeats are not started there.
"""

from __future__ import annotations

from django.db.models.functions import Now

from django_lockstep.leases.handles import LeaseHandle
from django_lockstep.leases.models import Lease
from django_lockstep.stores.terms import KEPT

__all__ = ["expire", "steal"]

_TRIES = 5
"""Attempts: a heartbeat may refresh the lease right after `expire`."""


def expire(key: str) -> None:
    """Let the lease expire now, as if its ttl had passed; its holder is not notified."""
    Lease.objects.filter(key=key).update(expires_at=Now())


def steal(key: str, ttl: float = 60, *, owner: str = "another holder", data: object = KEPT) -> LeaseHandle:
    """Take the lease from its holder, as if it had expired; return the new holder's handle.

    Raises ``RuntimeError`` where another session guards the lease.
    """
    for _ in range(_TRIES):
        expire(key)
        handle = Lease.objects.acquire(key, ttl, owner=owner, data=data)
        if handle is not None:
            return handle
    raise RuntimeError(f"Lease {key!r} could not be stolen: {Lease.objects.holder(key) or 'it is under guard'}")
