"""For tests of code that uses leases: another holder steals one, or time passes.

Nothing here waits. In Django's ``TestCase``, and with pytest-django's ``db``, leases belong to the test's own
transaction and end with it; heartbeats are not started there. ``store`` names a store of ``LOCKSTEP_STORES``.
"""

from __future__ import annotations

from django.db.models.functions import Now

from django_lockstep.leases.handles import LeaseHandle, acquire_from
from django_lockstep.leases.models import Lease
from django_lockstep.leases.stores import find_store
from django_lockstep.stores.dynamodb.leases import DynamoLeases
from django_lockstep.stores.protocol import LeaseStore
from django_lockstep.stores.terms import KEPT, claim

__all__ = ["expire", "steal"]

_TRIES = 5
"""Attempts: a heartbeat may refresh the lease right after `expire`."""


def expire(key: str, *, store: str | None = None) -> None:
    """Let the lease expire now, as if its ttl had passed; its holder is not notified.

    On DynamoDB for this process: as if it had seen no sign of life for that long.
    """
    _expire(key, find_store(store))


def steal(
    key: str, ttl: float = 60, *, owner: str = "another holder", data: object = KEPT, store: str | None = None
) -> LeaseHandle:
    """Take the lease from its holder, as if it had expired; return the new holder's handle.

    Raises ``RuntimeError`` where another session guards the lease.
    """
    target, request = find_store(store), claim(key, ttl, owner=owner, data=data)
    for _ in range(_TRIES):
        _expire(key, target)
        answer = acquire_from(target, request, wait=0)
        if isinstance(answer, LeaseHandle):
            return answer
    raise RuntimeError(f"Lease {key!r} could not be stolen: {target.get(key) or 'it is under guard'}")


def _expire(key: str, store: LeaseStore) -> None:
    if isinstance(store, DynamoLeases):
        if store.get(key) is not None:
            store.sightings.age(key)
    else:
        Lease.objects.using(store.name).filter(key=key).update(expires_at=Now())
