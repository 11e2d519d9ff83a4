"""Who waits gets the lease when it is free, in the order of asking, and not after the time that was given."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_lockstep.leases import LeaseHandle, postgresql
from django_lockstep.leases.lines import lines
from django_lockstep.leases.models import Lease
from django_lockstep.leases.postgresql import PostgresLeases
from django_lockstep.leases.stores import store_on
from django_lockstep.leases.testing import expire
from django_lockstep.stores import protocol
from django_lockstep.stores.terms import Grant, Holder, claim
from tests.django_lockstep.leases.holding import acquired, wait_as_processes
from tests.support.sessions import Session, query, until

pytestmark = pytest.mark.django_db(transaction=True)


def queued() -> int:
    """Return how many sessions are in queues, the first ones included; not those that only look for a queue."""
    return int(
        query(
            "SELECT count(DISTINCT pid) FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE datname = current_database() AND locktype = 'advisory'"
            " AND (NOT granted OR xact_start < query_start)"
        )
    )


def test_the_leases_expiry_lets_the_waiter_in(handle: LeaseHandle, other: Session) -> None:
    answer = other.start(Lease.objects.acquire, "k", 60, wait=20)
    until(lambda: queued() == 1, "the waiter")
    expire("k")
    assert answer.result(20) is not None


def waiting_here(label: object = ("default", "k")) -> int:
    """Return how many of this process wait for the lease, or for a place in the database's queues."""
    return len(lines._lines.get(label, ()))


@pytest.mark.parametrize("processes", ["one", "several"])
def test_waiters_get_it_in_the_order_of_asking(
    handle: LeaseHandle, open_session: Callable[[], Session], monkeypatch: pytest.MonkeyPatch, processes: str
) -> None:
    if processes == "several":
        wait_as_processes(monkeypatch)
    count = queued if processes == "several" else waiting_here
    waiters, answers = [open_session() for _ in range(4)], []
    for number, waiter in enumerate(waiters, start=1):
        answers.append(waiter.start(Lease.objects.acquire, "k", 60, wait=20))
        until(lambda expected=number: count() == expected, "the waiter")  # type: ignore[misc]
    if processes == "one":
        # Otherwise as many waiters as a pooler has sessions would leave none to the holder.
        until(lambda: queued() == 1, "the first of the line")
        idle = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle' AND pid = ANY(%s)"
        assert query(idle, [waiter.pid for waiter in waiters[1:]]) == 3
    tokens = []
    for answer in answers:
        handle.release()
        successor = answer.result(20)
        assert successor is not None
        tokens.append(successor.token)
        handle = successor
    assert tokens == sorted(tokens)
    assert waiting_here() == 0


def test_it_waits_for_no_other_holder(handle: LeaseHandle, open_session: Callable[[], Session], settings: Any) -> None:
    """Where all places are taken it polls: one lease may be what the holder of another one waits for."""
    settings.LOCKSTEP_LEASE_WAITERS = 1
    another = acquired("another")
    first = open_session().start(Lease.objects.acquire, "k", 60, wait=20)
    until(lambda: queued() == 1, "the only place")
    second = open_session().start(Lease.objects.acquire, "another", 60, wait=20)
    until(lambda: waiting_here("default") == 2, "the one without a place")
    another.release()
    assert second.result(20) is not None
    assert not first.done()
    handle.release()
    assert first.result(20) is not None


def test_places_go_round(
    handle: LeaseHandle, open_session: Callable[[], Session], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.LOCKSTEP_LEASE_WAITERS = 1
    monkeypatch.setattr(postgresql, "TURN", 0.01)
    another = acquired("another")
    answers = [open_session().start(Lease.objects.acquire, key, 60, wait=20) for key in ("k", "another")]
    held = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1"
        " AND (classid::bigint << 32) | objid::bigint = hashtextextended('lockstep.leases:' || %s, 0)"
    )
    for key in ("k", "another", "k"):
        until(lambda key=key: query(held, key) == 1, key)  # type: ignore[misc]
    handle.release()
    another.release()
    assert None not in [answer.result(20) for answer in answers]


def test_without_places_all_poll(handle: LeaseHandle, other: Session, settings: Any) -> None:
    settings.LOCKSTEP_LEASE_WAITERS = 0
    assert Lease.objects.acquire("k", 60, wait=0.05) is None
    answer = other.start(Lease.objects.acquire, "k", 60, wait=20)
    until(lambda: waiting_here("default") == 1, "the waiter")
    assert queued() == 0
    handle.release()
    assert answer.result(20) is not None


@pytest.mark.parametrize("most", [-1, 1.5, True, "2", None])
def test_how_many_places_is_a_number(handle: LeaseHandle, settings: Any, most: object) -> None:
    settings.LOCKSTEP_LEASE_WAITERS = most
    with pytest.raises(ValueError, match=f"LOCKSTEP_LEASE_WAITERS must be an integer of at least 0, not {most!r}"):
        Lease.objects.acquire("k", 60, wait=20)
    assert waiting_here() == 0


def test_who_is_interrupted_leaves_the_line(handle: LeaseHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, lines.joined(("default", "k"), places=1):
        patch.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Lease.objects.acquire("k", 60, wait=20)
        assert waiting_here() == 1
    handle.release()
    assert acquired(wait=20)


def test_the_wait_ends_in_the_line_too(handle: LeaseHandle) -> None:
    with lines.joined(("default", "k"), places=1):
        assert Lease.objects.acquire("k", 60, wait=0.05) is None
        assert waiting_here() == 1
    handle.release()


FORKED = """
import os
from django_lockstep.leases.lines import lines
with lines.joined("k", places=1):
    child = os.fork()
    if not child:
        with lines.joined("k", places=1) as is_first:
            os._exit(0 if is_first(0) else 1)
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_no_line_yet() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True)


@pytest.fixture
def first_in_the_queue(other: Session) -> Iterator[Session]:
    """A session that queues and does nothing else."""
    with other.holding(lambda: PostgresLeases("default").queue("k", timeout=20, after=20)):
        yield other


def test_for_a_moment_somebody_may_be_faster_than_the_first_in_the_queue(first_in_the_queue: Session) -> None:
    acquired(wait=0.001).release()


def test_who_claims_its_turn_is_served_first(handle: LeaseHandle, first_in_the_queue: Session) -> None:
    handle.release()
    first_in_the_queue.run(lambda: PostgresLeases("default").claim_turn("k", timeout=20))
    assert Lease.objects.acquire("k", 60, wait=0.001) is None
    assert isinstance(first_in_the_queue.run(lambda: store_on().take_here(claim("k", 60))), Grant)


def test_the_first_in_the_queue_claims_its_turn_before_long(handle: LeaseHandle, other: Session) -> None:
    first = other.start(Lease.objects.acquire, "k", 60, wait=20)
    locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = %s"
    until(lambda: query(locks, other.pid) == 2, "its place in the queue, and the lock that says so")
    handle.release()
    latecomer = Lease.objects.acquire("k", 60, wait=0.001)
    assert first.result(20) is not None
    assert latecomer is None


def test_the_wait_ends_in_time(handle: LeaseHandle) -> None:
    begun = time.monotonic()
    assert Lease.objects.acquire("k", 60, wait=0.05) is None
    assert time.monotonic() - begun >= 0.05
    assert not connection.in_atomic_block
    assert queued() == 0
    handle.release()


@pytest.fixture
def limited(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sessions of a project that has this time limit of its own, shorter than the waits of these tests."""
    if request.param == "transaction_timeout" and connection.pg_version < 170000:  # type: ignore[attr-defined]
        pytest.skip("PostgreSQL 17 and later have a transaction_timeout")
    connection.close()
    options = connection.settings_dict["OPTIONS"] | {"options": f"-c {request.param}=1s"}
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "OPTIONS", options)
        yield
    connection.close()


@pytest.mark.parametrize("limited", ["lock_timeout", "transaction_timeout"], indirect=True)
def test_limits_of_the_session_do_not_end_it(handle: LeaseHandle, first_in_the_queue: Session, limited: None) -> None:
    assert Lease.objects.acquire("k", 60, wait=1.2) is None


@pytest.mark.parametrize("limited", ["transaction_timeout"], indirect=True)
def test_nor_that_of_the_first_in_the_queue(handle: LeaseHandle, limited: None) -> None:
    assert Lease.objects.acquire("k", 60, wait=1.2) is None


def test_a_server_is_not_told_of_a_limit_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(connections["default"]), "pg_version", 160000)
    with CaptureQueriesContext(connection) as sent, transaction.atomic():
        PostgresLeases("default").queue("k", timeout=20, after=20)
        assert query("SHOW lock_timeout") == "0"
    assert not any("transaction_timeout" in statement["sql"] for statement in sent)


def test_the_wait_ends_in_the_queue_too(handle: LeaseHandle, other: Session) -> None:
    first = other.start(Lease.objects.acquire, "k", 60, wait=20)
    until(lambda: queued() == 1, "the first in the queue")
    assert Lease.objects.acquire("k", 60, wait=0.05) is None
    expire("k")
    assert first.result(20) is not None


def test_a_long_wait_queues_anew(handle: LeaseHandle, monkeypatch: pytest.MonkeyPatch, other: Session) -> None:
    monkeypatch.setattr(postgresql, "TURN", 0.01)
    answer = other.start(Lease.objects.acquire, "k", 60, wait=20)
    until(lambda: queued() == 1, "the first turn")
    until(lambda: queued() == 0, "its end")
    handle.release()
    assert answer.result(20) is not None


def test_it_holds_neither_row_lock_nor_snapshot_while_it_sleeps(handle: LeaseHandle, other: Session) -> None:
    answer = other.start(Lease.objects.acquire, "k", 60, wait=20)
    sleeping = "SELECT backend_xmin::text FROM pg_stat_activity WHERE pid = %s AND state LIKE 'idle in%%'"
    snapshots: list[str | None] = []

    def has_slept_through(looks: int) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(sleeping, [other.pid])
            snapshots.extend(snapshot for (snapshot,) in cursor.fetchall())
        return len(snapshots) >= looks

    until(lambda: has_slept_through(50), "the first in the queue to sleep")
    assert snapshots == [None] * 50
    assert not query("SELECT count(*) FROM pg_locks WHERE pid = %s AND locktype = 'tuple'", other.pid)
    handle.release()
    assert answer.result(20) is not None


def test_pauses_grow_stay_bounded_and_end_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    taken = []
    for pause in protocol.pauses(160.0):
        taken.append(pause)
        clock[0] += pause
    assert sum(taken) == pytest.approx(60)
    assert max(taken[:5]) < 0.001
    assert max(taken) <= protocol.LONGEST_PAUSE


def test_tests_need_not_wait(handle: LeaseHandle, settings: pytest.FixtureRequest) -> None:
    settings.LOCKSTEP_LEASE_WAITS = False  # type: ignore[attr-defined]
    begun = time.monotonic()
    assert Lease.objects.acquire("k", 60, wait=3600) is None
    assert time.monotonic() - begun < 60


SLOW_CLOCK = """
CREATE SCHEMA slow;
CREATE FUNCTION slow.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_lock_shared(1), pg_advisory_unlock_shared(1);
    RETURN pg_catalog.clock_timestamp();
END $$
"""


@pytest.fixture
def slow_clock() -> Iterator[str]:
    """A schema with a clock that stands still while this session holds advisory lock 1."""
    query(SLOW_CLOCK)
    yield "slow, public, pg_catalog"
    query("DROP SCHEMA slow CASCADE")


def test_the_first_in_the_queue_does_not_lock_what_somebody_faster_took(other: Session, slow_clock: str) -> None:
    """It found the lease free, and locks the row when that is somebody's already, who did not queue."""
    acquired().release()

    def look() -> object:
        query(f"SET search_path = {slow_clock}")
        ours = PostgresLeases("default")
        ours.queue("k", timeout=20, after=20)
        return ours.take_here(claim("k", 60))

    other.begin()
    query("SELECT pg_advisory_lock(1)")
    looking = other.start(look)
    other.wait_until_blocked()
    faster = Lease.objects.acquire("k", 60)
    query("SELECT pg_advisory_unlock(1)")
    assert isinstance(looking.result(20), Holder)
    assert faster is not None
    faster.refresh()
    with transaction.atomic():
        faster.guard()
    other.end()
    other.run(connections.close_all)
