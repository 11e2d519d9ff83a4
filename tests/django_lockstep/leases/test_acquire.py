"""One holder a key, by the database's clock; tokens rise and never return; a refusal writes nothing."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from django_lockstep.lab.pytest_plugin import RaceFixture
from django_lockstep.leases import LeaseHandle, LeaseLost, lease
from django_lockstep.leases.models import Lease
from django_lockstep.leases.stores import store_on
from django_lockstep.leases.testing import expire, steal
from django_lockstep.stores.terms import Claim, claim
from tests.django_lockstep.leases.holding import acquired, purge
from tests.support.sessions import Session, query

pytestmark = pytest.mark.django_db(transaction=True)


def test_keys_do_not_know_each_other() -> None:
    assert all(Lease.objects.acquire(key, 60) for key in ("a", "A", "ä", "a ", "%s {x} 'q' \\"))


def test_who_is_not_named_has_a_name_of_host_process_thread_and_chance(other: Session) -> None:
    owners = [getattr(Lease.objects.acquire(key, 60), "owner", "") for key in "ab"]
    owners.append(other.run(Lease.objects.acquire, "c", 60).owner)  # type: ignore[union-attr]
    assert len({tuple(owner.split(":")[:3]) for owner in owners}) == 2
    assert len(set(owners)) == 3


# Tokens


@pytest.mark.parametrize(
    "end",
    [
        lambda handle: handle.release(),
        lambda handle: expire("k"),
        lambda handle: Lease.objects.filter(key="k").force_release(),
        lambda handle: purge(),
        lambda handle: call_command("flush", interactive=False, verbosity=0),
    ],
    ids=["release", "expiry", "force", "purge", "flush"],
)
def test_a_token_never_returns(end: Callable[[Any], Any]) -> None:
    first = acquired()
    end(first)
    second = acquired()
    assert second.token > first.token


def test_a_token_does_not_return_with_a_rollback() -> None:
    with transaction.atomic():
        first = attempt_inside(claim("k", 60))
        transaction.set_rollback(True)
    assert attempt_inside(claim("k", 60)).token > first.token


def attempt_inside(request: Claim) -> Any:
    """Attempt on this connection, whatever is open there."""
    return store_on().take_here(request)


# Refusals


def test_a_refusal_has_no_transaction_id_and_is_one_round_trip(other: Session) -> None:
    other.run(Lease.objects.acquire, "k", 60)
    with transaction.atomic(), CaptureQueriesContext(connection) as captured:
        refusal = attempt_inside(claim("k", 60))
        assert query("SELECT pg_current_xact_id_if_assigned() IS NULL")
    assert refusal.key == "k"
    assert len(captured) == 2


def test_a_refusal_writes_no_wal(other: Session) -> None:
    if connection.pg_version < 180000:  # type: ignore[attr-defined]
        pytest.skip("WAL of one session is counted by PostgreSQL 18 and later")
    other.run(Lease.objects.acquire, "k", 60)
    # What a look at a page tidies up is not the refusal's: once in a while there is nothing to tidy.
    assert any(wal_of_refusals(20) == 0 for _ in range(10))
    before = wal_bytes()
    assert Lease.objects.acquire("another", 60)
    assert wal_bytes() > before


def wal_of_refusals(times: int) -> int:
    before = wal_bytes()
    for _ in range(times):
        assert Lease.objects.acquire("k", 60) is None
    return wal_bytes() - before


def wal_bytes() -> int:
    query("SELECT pg_stat_force_next_flush() IS NULL")
    return int(query("SELECT wal_bytes FROM pg_stat_get_backend_wal(pg_backend_pid())"))


# What is refused before any SQL


@pytest.mark.parametrize(
    ("key", "ttl", "options", "said"),
    [
        ("", 60, {}, "key must have 1 to 255 characters, not 0"),
        ("k" * 256, 60, {}, "key must have 1 to 255 characters, not 256"),
        ("a\0b", 60, {}, "key must not contain NUL"),
        ("\ud800", 60, {}, "surrogate"),
        (7, 60, {}, "key must be a string, not 7"),
        ("k", 0, {}, "ttl must be finite and greater than zero, not 0"),
        ("k", float("inf"), {}, "ttl must be finite"),
        ("k", 1e12, {}, "ttl must be at most 3155760000 seconds"),
        ("k", 60, {"owner": "a\0"}, "owner must not contain NUL"),
        ("k", "60", {}, "ttl must be a timedelta or a number of seconds, not '60'"),
        ("k", 60, {"owner": ""}, "owner must have 1 to 255 characters"),
        ("k", 60, {"wait": -1}, "wait must be finite and at least zero, not -1"),
        ("k", 60, {"at_least": 0}, "at_least must be finite and greater than zero"),
        ("k", 60, {"data": {"a": "\0"}}, "data must not contain NUL"),
        ("k", 60, {"data": float("nan")}, "Out of range"),
        ("k", 60, {"data": object()}, "not JSON serializable"),
    ],
)
def test_what_is_wrong_is_named(key: Any, ttl: Any, options: dict[str, Any], said: str) -> None:
    with CaptureQueriesContext(connection) as captured, pytest.raises((TypeError, ValueError), match=said):
        Lease.objects.acquire(key, ttl, **options)
    assert not captured.captured_queries


@pytest.mark.parametrize(
    "call",
    [
        lambda handle: handle.refresh(1e12),
        lambda handle: handle.refresh(at_least=1e12),
        lambda handle: handle.ensure(1e12),
        lambda handle: handle.watch(print, margin=1e12),
        lambda handle: handle.guard(within=1e12),
        lambda handle: Lease.objects.guard("k", handle.token, within=1e12),
        lambda handle: lease("k", 60, wait=1e12),
        lambda handle: lease("k", 60, margin=1e12),
        lambda handle: Lease.objects.all().ended(1e12),
        lambda handle: Lease.objects.purge(1e12),
    ],
)
def test_nothing_takes_longer_than_a_century(call: Callable[[LeaseHandle], object]) -> None:
    handle = acquired()
    with (
        transaction.atomic(),
        CaptureQueriesContext(connection) as captured,
        pytest.raises(ValueError, match="must be at most 3155760000 seconds"),
    ):
        call(handle)
    assert not captured.captured_queries


def test_a_century_is_taken() -> None:
    handle = acquired(ttl=3_155_760_000, at_least=3_155_760_000)
    handle.refresh()
    assert handle.release()
    assert Lease.objects.holder("k")


def test_255_characters_of_any_kind_are_a_key() -> None:
    key = "😀" * 255
    assert Lease.objects.acquire(key, 60)
    assert Lease.objects.holder(key)
    assert Lease.objects.acquire(key, 60) is None


def test_inside_a_transaction_it_is_refused() -> None:
    refused = pytest.raises(TransactionManagementError, match="outside of transactions, but one is open on .*'default'")
    with transaction.atomic(), CaptureQueriesContext(connection) as captured, refused:
        Lease.objects.acquire("k", 60)
    assert not captured.captured_queries


def test_without_autocommit_it_is_refused() -> None:
    transaction.set_autocommit(False)
    try:
        with pytest.raises(TransactionManagementError):
            Lease.objects.acquire("k", 60)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


# Answers that were lost


def test_an_acquire_whose_answer_was_lost_is_found_again() -> None:
    request = claim("k", 60)
    first, second = store_on().take(request), store_on().take(request)
    assert (first.token, first.since) == (second.token, second.since)  # type: ignore[union-attr]


def test_a_name_that_was_given_may_be_somebody_elses() -> None:
    Lease.objects.acquire("k", 60, owner="worker")
    assert Lease.objects.acquire("k", 60, owner="worker") is None


def test_a_broken_connection_is_replaced(other: Session) -> None:
    pid = query("SELECT pg_backend_pid()")
    other.run(query, "SELECT pg_terminate_backend(%s)", pid)
    assert Lease.objects.acquire("k", 60)


def test_a_heartbeat_that_comes_in_between_does_not_stop_a_robber(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = acquired()
    beats = iter([handle.refresh])

    def expire_before_a_beat(key: str) -> None:
        expire(key)
        next(beats, lambda: None)()

    monkeypatch.setattr("django_lockstep.leases.testing.expire", expire_before_a_beat)
    assert steal("k").token > handle.token


# Every interleaving of an old holder's write with a takeover


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
    exploration = race(first, take, set_up=expired, invariant=lambda handle: Lease.objects.holder("k") is not None)
    assert all(list(outcome.results.values()).count("True") == 1 for outcome in exploration.outcomes)


def expired() -> LeaseHandle:
    handle = acquired()
    expire("k")
    return handle
