"""A lease that is held, as most tests begin, and who holds it."""

import threading
from collections.abc import Hashable
from typing import Any

import pytest

from django_lockstep.leases import Holder, LeaseHandle, database, postgresql
from django_lockstep.leases.lines import Lines
from django_lockstep.leases.models import Lease
from django_lockstep.leases.testing import expire


def acquired(key: str = "k", ttl: Any = 60, **options: Any) -> LeaseHandle:
    handle = Lease.objects.acquire(key, ttl, **options)
    assert handle is not None
    return handle


def holder_of(key: str) -> Holder:
    holder = Lease.objects.holder(key)
    assert holder is not None
    return holder


def lock_rows() -> None:
    """Lock the rows of all leases, as a takeover does."""
    list(Lease.objects.select_for_update())


def purge() -> None:
    """Let the lease expire, and delete its row."""
    expire("k")
    Lease.objects.purge(1e-6)


class _LinesOfThreads(Lines):
    def joined(self, label: Hashable, *, places: int) -> Any:
        return super().joined((threading.get_ident(), label), places=places)


def wait_as_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each thread wait as a process of its own does."""
    lines = _LinesOfThreads()
    for module in (database, postgresql):
        monkeypatch.setattr(module, "lines", lines)
