"""A lease that is held, as most tests begin, and who holds it."""

from typing import Any

from django_lockstep.leases import Holder, LeaseHandle
from django_lockstep.leases.models import Lease


def acquired(key: str = "k", ttl: Any = 60, **options: Any) -> LeaseHandle:
    handle = Lease.objects.acquire(key, ttl, **options)
    assert handle is not None
    return handle


def holder_of(key: str) -> Holder:
    holder = Lease.objects.holder(key)
    assert holder is not None
    return holder
