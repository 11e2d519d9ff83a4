"""The database's clock decides; the client's may say what it likes."""

import time
from datetime import datetime

import pytest
from django.utils import timezone

from django_lockstep.leases import lease
from django_lockstep.leases.models import Lease
from tests.django_lockstep.leases.holding import holder_of
from tests.support.sessions import Session, until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=[-3600, 3600], ids=["an hour slow", "an hour fast"])
def _wrong_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Move every wall clock that Python code could look at."""
    real, ahead = time.time, request.param

    class Moved(datetime):
        @classmethod
        def now(cls, tz: object = None) -> "Moved":
            return cls.fromtimestamp(time.time(), tz)  # type: ignore[arg-type]

    monkeypatch.setattr(time, "time", lambda: real() + ahead)
    monkeypatch.setattr("datetime.datetime", Moved)
    monkeypatch.setattr(timezone, "now", lambda: Moved.now(timezone.get_default_timezone()))


@pytest.mark.usefixtures("_wrong_clock")
def test_the_lease_is_held_and_expires_as_ever(other: Session) -> None:
    with lease("k", ttl=60) as handle:
        assert 30 < handle.remaining < 60
        handle.refresh()
        handle.check()
        assert other.run(Lease.objects.acquire, "k", 60) is None
        holder = holder_of("k")
        assert 30 < holder.remaining <= 60
    assert other.run(Lease.objects.acquire, "k", 60) is not None


@pytest.mark.usefixtures("_wrong_clock")
def test_a_heartbeat_and_a_wait_go_on_as_ever(other: Session) -> None:
    with lease("k", ttl=4.5, heartbeat=True) as handle:
        first = Lease.objects.get().expires_at
        until(lambda: Lease.objects.get().expires_at > first, "a beat")
        handle.check()
        waiting = other.start(Lease.objects.acquire, "k", 60, wait=20)
    assert waiting.result(20) is not None
