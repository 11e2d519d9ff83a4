"""A heartbeat keeps a lease for as long as somebody wants it, and tells once when it is lost."""

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from queue import Queue
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from django_lockstep.leases import LeaseHandle, LeaseLost, heartbeats, lease
from django_lockstep.leases.models import Lease
from django_lockstep.leases.postgresql import PostgresLeases
from django_lockstep.leases.testing import steal
from tests.django_lockstep.leases.holding import acquired, holder_of
from tests.support.sessions import PATIENCE, Session, query, until

pytestmark = pytest.mark.django_db(transaction=True)

TTL = 4.5


def beating() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "heartbeat of leases on default"]


@pytest.fixture(autouse=True)
def _none_is_left() -> Iterator[None]:
    yield
    gc.collect()
    until(lambda: not beating(), "the heartbeats to end")


def expiry() -> Any:
    return Lease.objects.get(key="k").expires_at


def test_all_leases_of_a_process_have_two_threads_and_a_connection_and_give_them_back() -> None:
    before, threads = sessions(), threading.active_count()
    with ExitStack() as stack:
        handles = [stack.enter_context(lease(f"k{number}", TTL, heartbeat=True)) for number in range(20)]
        deadlines = [handle._deadline for handle in handles]
        until(lambda: all(h._deadline > before for h, before in zip(handles, deadlines, strict=True)), "a beat of each")
        opened = sessions() - before
        assert (len(opened), len(beating()), threading.active_count() - threads) == (1, 1, 2)
    until(lambda: not sessions() & opened, "its connection to be closed")
    until(lambda: threading.active_count() == threads, "its threads to end")


def test_one_whose_row_is_locked_costs_the_others_little(other: Session, caplog: pytest.LogCaptureFixture) -> None:
    """It has a sixth of the shortest ttl, and not of its own, which would be longer than the other lasts."""
    slow = acquired("slow", 30)
    slow.start_heartbeat()
    with lease("k", 3, heartbeat=True) as handle:
        with other.holding(lambda: Lease.objects.select_for_update().get(key="slow")):
            slow._heartbeat.due = 0  # type: ignore[union-attr]
            until(lambda: "A heartbeat of lease 'slow' failed" in caplog.text, "the locked one to be given up")
            before = expiry()
            until(lambda: expiry() > before, "a beat of the other")
        handle.check()
        deadline = slow._deadline
        until(lambda: slow._deadline > deadline, "another attempt")
    slow.release()


def test_a_callback_that_does_not_end_stops_no_other_heartbeat() -> None:
    called, go_on = threading.Event(), threading.Event()

    def wait(handle: LeaseHandle) -> None:
        called.set()
        go_on.wait(PATIENCE)

    with lease("lost", TTL, heartbeat=True, on_lost=wait), lease("k", TTL, heartbeat=True) as handle:
        steal("lost")
        assert called.wait(PATIENCE)
        before = expiry()
        until(lambda: expiry() > before, "a beat of the other")
        handle.check()
        go_on.set()


def test_a_forked_process_has_threads_of_its_own() -> None:
    with lease("k", 60, heartbeat=True):
        until(lambda: len(beating()) == 1, "the thread")
        before = heartbeats._all_rounds.copy()
        heartbeats._all_rounds.clear()  # as a fork does for the child
        with lease("another", 60, heartbeat=True):
            assert len(beating()) == 2
        heartbeats._all_rounds.update(before)


def sessions() -> set[int]:
    clients = "SELECT array_agg(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"
    return set(query(f"{clients} AND datname = current_database()"))


def test_a_transaction_of_the_holder_does_not_stop_it() -> None:
    with lease("k", TTL, heartbeat=True) as handle, transaction.atomic():
        handle.guard()
        before = query("SELECT expires_at FROM lockstep_leases_lease")
        until(lambda: query("SELECT expires_at FROM lockstep_leases_lease") > before, "a beat")


def test_a_lost_lease_calls_once_and_check_raises() -> None:
    calls: list[LeaseHandle] = []
    with lease("k", TTL, heartbeat=True, on_lost=calls.append) as handle:
        thief = steal("k")
        until(lambda: bool(calls), "on_lost")
        with pytest.raises(LeaseLost, match="another holder took it"):
            handle.check()
        with pytest.raises(LeaseLost):
            handle.refresh()
    assert calls == [handle]
    assert Lease.objects.get(key="k").token == thief.token


def test_one_failure_is_made_good(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    failures = failing(monkeypatch, times=1)
    with lease("k", TTL, heartbeat=True) as handle:
        before = expiry()
        until(lambda: expiry() > before, "the beat after the failure")
        handle.check()
    assert len(failures) == 1
    assert "A heartbeat of lease 'k' failed" in caplog.text


def test_failures_until_it_has_expired_are_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, times=1000)
    calls: list[LeaseHandle] = []
    with lease("k", 1.5, heartbeat=True, on_lost=calls.append) as handle:
        until(lambda: bool(calls), "on_lost")
        with pytest.raises(LeaseLost, match="did not answer until it had expired"):
            handle.check()
    assert calls == [handle]


def failing(monkeypatch: pytest.MonkeyPatch, *, times: int) -> list[str]:
    """Let the heartbeat's next statements fail."""
    failures: list[str] = []

    renew = PostgresLeases.renew

    def fail(store: PostgresLeases, *args: Any, **options: Any) -> bool:
        if threading.current_thread().name.startswith("heartbeat") and len(failures) < times:
            failures.append(store.name)
            raise OperationalError("no server")
        return renew(store, *args, **options)

    monkeypatch.setattr(PostgresLeases, "renew", fail)
    return failures


@pytest.mark.parametrize("heartbeat", [True, False])
def test_an_error_of_a_callback_is_logged_and_hides_no_loss(caplog: pytest.LogCaptureFixture, heartbeat: bool) -> None:
    def complain(handle: LeaseHandle) -> None:
        raise RuntimeError("what now?")

    with lease("k", TTL if heartbeat else 60, heartbeat=heartbeat, on_lost=complain) as handle:
        steal("k")
        if heartbeat:
            until(lambda: handle.remaining == 0 and not beating(), "the loss")
        with pytest.raises(LeaseLost):
            handle.refresh()
    until(lambda: "what now?" in caplog.text, "the log")  # a heartbeat's callback has a thread of its own


def test_the_callback_may_release() -> None:
    answers: list[bool] = []
    with lease("k", TTL, heartbeat=True, on_lost=lambda handle: answers.append(handle.release())):
        steal("k")
        until(lambda: bool(answers), "on_lost")
    assert answers == [False]


def test_danger_is_told_of_before_the_end_and_again_after_a_refresh() -> None:
    left: Queue[float] = Queue()
    with lease("k", 60, on_danger=lambda handle: left.put(handle.remaining), margin=59.5) as handle:
        assert 0 < left.get(timeout=PATIENCE) <= 59.5
        assert not beating()
        handle.refresh(61)
        assert 0 < left.get(timeout=PATIENCE) <= 59.5
        handle.check()


def test_a_heartbeat_that_succeeds_is_no_danger() -> None:
    calls: list[LeaseHandle] = []
    with lease("k", TTL, heartbeat=True, on_danger=calls.append, margin=0.1):
        before = expiry()
        until(lambda: expiry() > before, "a beat")
        assert len(beating()) == 1
    assert not calls


def test_danger_is_told_of_before_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, times=1000)
    told: list[str] = []
    callbacks: Any = {"on_danger": lambda handle: told.append("danger"), "on_lost": lambda handle: told.append("lost")}
    with lease("k", 1.5, heartbeat=True, **callbacks):
        until(lambda: "lost" in told, "the loss")
    assert told == ["danger", "lost"]


def test_it_ends_with_the_handle_and_not_with_the_next_beat() -> None:
    handle = acquired(ttl=6000)
    handle.start_heartbeat()
    threads = [*beating(), *(thread for thread in threading.enumerate() if thread.name == "watch of leases")]
    assert len(threads) == 2
    del handle
    gone(threads)


def test_a_beat_under_way_does_not_keep_the_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def beat(*args: Any, **options: Any) -> bool:
        reached.set()
        return go_on.wait(PATIENCE)

    handle = acquired(ttl=TTL)
    monkeypatch.setattr(PostgresLeases, "renew", beat)
    handle.start_heartbeat()
    threads = beating()
    assert reached.wait(PATIENCE)
    del handle
    assert all(thread.is_alive() for thread in threads)
    go_on.set()
    gone(threads)


def gone(threads: list[threading.Thread]) -> None:
    gc.collect()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)


def test_it_is_not_started_twice() -> None:
    with lease("k", TTL, heartbeat=True) as handle:
        handle.start_heartbeat()
        assert len(beating()) == 1


@pytest.mark.django_db(transaction=False)
def test_in_a_transaction_of_a_test_there_is_none() -> None:
    assert connection.in_atomic_block
    with lease("k", TTL, heartbeat=True):
        assert not beating()


# The database's clock decides; the client's may say what it likes


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
        assert 30 < holder_of("k").remaining <= 60
    assert other.run(Lease.objects.acquire, "k", 60) is not None


@pytest.mark.usefixtures("_wrong_clock")
def test_a_heartbeat_and_a_wait_go_on_as_ever(other: Session) -> None:
    with lease("k", ttl=4.5, heartbeat=True) as handle:
        first = Lease.objects.get().expires_at
        until(lambda: Lease.objects.get().expires_at > first, "a beat")
        handle.check()
        waiting = other.start(Lease.objects.acquire, "k", 60, wait=20)
    assert waiting.result(20) is not None
