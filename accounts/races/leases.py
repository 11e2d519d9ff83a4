"""A lease is taken over while its old holder is about to write: with a lease guard, and with a plain check instead.

Requires ``django_lockstep.leases`` to be installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db import transaction

from accounts.races.rows import accounts, balances, one_account
from django_lockstep.lab.races import Race
from django_lockstep.lab.scenario import Scenario
from django_lockstep.lab.wording import gettext as _
from django_lockstep.leases import LeaseHandle, LeaseLost
from django_lockstep.leases.models import Lease
from django_lockstep.leases.testing import expire

KEY = "race"
OLD, NEW = 1, 2
"""What the old holder writes, and what its successor does."""

ExpiredLease = tuple[Any, LeaseHandle]
"""The key of the account that both actors write, and the old holder's handle."""


def races() -> Iterator[Race]:
    """Yield the takeover of an expired lease, with each way to make sure of it."""
    for name, guarded, text in (
        ("guarded", True, _("A lease is taken over while its old holder writes under its guard.")),
        ("looked-at", False, _("The same, but the old holder only looks whether it still has the lease.")),
    ):
        yield Race(name=f"lease-takeover:{name}", text=text, scenario=takeover(guarded=guarded), holds=guarded)


def takeover(*, guarded: bool) -> Scenario:
    """Return the race of an old holder, whose lease has expired, with a successor for the last word on one row."""

    def write_as_old_holder(lease: ExpiredLease) -> bool:
        pk, handle = lease
        with transaction.atomic():
            try:
                if guarded:
                    handle.guard()
                # True at this moment only: the successor may take the lease over and write before the UPDATE below.
                elif not Lease.objects.filter(key=handle.key, token=handle.token).exists():
                    return False
            except LeaseLost:
                return False
            accounts(pk).update(balance=OLD)
        return True

    return Scenario(
        set_up=acquire_and_expire,
        actors={"old": write_as_old_holder, "new": write_as_successor},
        invariant=last_holder_wrote_last,
        observe=lambda lease: balances(lease)[0],
    )


def acquire_and_expire() -> ExpiredLease:
    """Acquire the lease for the old holder, and let it expire."""
    pk, handle = one_account(), Lease.objects.acquire(KEY, 60, owner="old")
    if handle is None:
        raise RuntimeError(f"lease {KEY!r} is held outside of the race")
    expire(KEY)
    return pk, handle


def write_as_successor(lease: ExpiredLease) -> bool:
    """Take the lease over if that is possible, and write."""
    handle = Lease.objects.acquire(KEY, 60, owner="new")
    if handle is None:
        return False
    with transaction.atomic():
        handle.guard()
        accounts(lease[0]).update(balance=NEW)
    return True


def last_holder_wrote_last(lease: ExpiredLease) -> bool:
    """Whether the row is what the lease's last holder wrote."""
    owner = Lease.objects.get(key=KEY).owner
    return bool(accounts(lease[0]).get().balance == (NEW if owner == "new" else OLD))
