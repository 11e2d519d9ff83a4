"""Every interleaving of an old holder's write with a takeover."""

from collections.abc import Callable

import pytest

from accounts.races.leases import takeover
from django_lockstep.lab.explorer import explore
from django_lockstep.lab.pytest_plugin import RaceFixture
from django_lockstep.leases import LeaseHandle, LeaseLost
from django_lockstep.leases.models import Lease
from django_lockstep.leases.testing import expire
from tests.django_lockstep.leases.holding import acquired

pytestmark = pytest.mark.django_db(transaction=True)


def test_under_guard_the_last_word_is_the_holders() -> None:
    found = explore(takeover(guarded=True))
    assert found.verdict == "holds", found.reason
    assert {tuple(sorted(outcome.results.items())) for outcome in found.outcomes} == {
        (("new", "False"), ("old", "True")),
        (("new", "True"), ("old", "False")),
        (("new", "True"), ("old", "True")),
    }


def test_a_look_at_the_lease_leaves_a_window() -> None:
    found = explore(takeover(guarded=False))
    assert found.verdict == "broken", found.reason
    assert found.failure is not None
    assert found.failure.state == "1.00"


def take(handle: LeaseHandle) -> bool:
    return Lease.objects.acquire("k", 60) is not None


def refresh(handle: LeaseHandle) -> bool:
    try:
        handle.refresh()
    except LeaseLost:
        return False
    return True


@pytest.mark.parametrize("first", [take, refresh])
def test_an_expired_lease_has_one_taker_and_no_late_refresh(
    race: RaceFixture, first: Callable[[LeaseHandle], bool]
) -> None:
    found = race(first, take, set_up=expired, invariant=lambda handle: Lease.objects.holder("k") is not None)
    assert all(list(outcome.results.values()).count("True") == 1 for outcome in found.outcomes)


def expired() -> LeaseHandle:
    handle = acquired()
    expire("k")
    return handle
