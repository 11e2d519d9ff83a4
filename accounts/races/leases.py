"""A lease is taken over while its old holder is about to write: with a lease guard, and with a plain check instead.

Requires ``django_lockstep.leases`` to be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction

from accounts.models import Account
from django_lockstep.lab.races import Race
from django_lockstep.lab.scenario import Scenario
from django_lockstep.leases import LeaseHandle, LeaseLost
from django_lockstep.leases.models import Lease
from django_lockstep.leases.testing import expire

__all__ = ["races", "takeover"]

KEY = "race"
OLD, NEW = 1, 2
"""What the old holder writes, and what its successor does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Takeover:
    """The account that both actors write, and the old holder's handle."""

    account: Any
    handle: LeaseHandle


def races() -> Iterator[Race]:
    """Yield the takeover of an expired lease, with each way to make sure of it."""
    for name, guarded, text in (
        ("guarded", True, "A lease is taken over while its old holder writes under its guard."),
        ("looked-at", False, "The same, but the old holder only looks whether it still has the lease."),
    ):
        yield Race(name=f"lease-takeover:{name}", text=text, scenario=takeover(guarded=guarded), holds=guarded)


def takeover(*, guarded: bool) -> Scenario:
    """Return the race of an old holder, whose lease has expired, with a successor for the last word on one row."""
    return Scenario(
        set_up=_expired,
        actors={"old": _old_holder(guarded=guarded), "new": _successor},
        invariant=_the_holder_wrote_last,
        observe=_balance,
    )


def _expired() -> _Takeover:
    """Acquire the lease for the old holder, and let it expire."""
    account = Account.objects.create(user=get_user_model()._base_manager.create(username="race"))
    handle = Lease.objects.acquire(KEY, 60, owner="old")
    if handle is None:
        raise RuntimeError(f"lease {KEY!r} is held outside of the race")
    expire(KEY)
    return _Takeover(account=account.pk, handle=handle)


def _old_holder(*, guarded: bool) -> Callable[[_Takeover], bool]:
    def write(place: _Takeover) -> bool:
        with transaction.atomic():
            try:
                _require(place.handle, guarded=guarded)
            except LeaseLost:
                return False
            Account.objects.filter(pk=place.account).update(balance=OLD)
        return True

    return write


def _require(handle: LeaseHandle, *, guarded: bool) -> None:
    if guarded:
        handle.guard()
    # True at this moment only: the successor may take the lease over and write before the old holder's UPDATE.
    elif not Lease.objects.filter(key=handle.key, token=handle.token).exists():
        raise LeaseLost(key=handle.key, token=handle.token)


def _successor(place: _Takeover) -> bool:
    """Take the lease over if that is possible, and write."""
    handle = Lease.objects.acquire(KEY, 60, owner="new")
    if handle is None:
        return False
    with transaction.atomic():
        handle.guard()
        Account.objects.filter(pk=place.account).update(balance=NEW)
    return True


def _the_holder_wrote_last(place: _Takeover) -> bool:
    """Whether the row is what the lease's last holder wrote."""
    owner = Lease.objects.get(key=KEY).owner
    return bool(Account.objects.get(pk=place.account).balance == (NEW if owner == "new" else OLD))


def _balance(place: _Takeover) -> str:
    return str(Account.objects.get(pk=place.account).balance)
