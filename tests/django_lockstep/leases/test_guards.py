"""What is written under guard is written by the holder, or not at all."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, connections, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from django_lockstep.leases import LeaseHandle, LeaseLost, LeaseNotAcquired, guard, lease, managers
from django_lockstep.leases.models import Lease
from django_lockstep.leases.testing import expire, steal
from django_lockstep.locking import isolated_transaction
from tests.django_lockstep.leases.holding import acquired, holder_of, lock_rows, purge
from tests.django_lockstep.leases.test_handles import session_with
from tests.support.sessions import Session, query, until
from tests.testapps.press.models import Note

pytestmark = pytest.mark.django_db(transaction=True)


def write(handle: LeaseHandle) -> None:
    with transaction.atomic():
        handle.guard()
        Note.objects.create(token=handle.token)


def test_it_is_one_statement_that_locks_no_more_than_the_key(handle: LeaseHandle) -> None:
    with transaction.atomic(), CaptureQueriesContext(connection) as captured:
        handle.guard()
    (entry,) = captured
    assert "FOR KEY SHARE SKIP LOCKED" in entry["sql"]


@pytest.mark.parametrize(
    "end",
    [
        lambda handle: steal("k"),
        lambda handle: handle.release(),
        lambda handle: Lease.objects.filter(key="k").force_release(),
        lambda handle: purge(),
    ],
    ids=["stolen", "released", "forced", "purged"],
)
def test_who_no_longer_holds_it_writes_nothing(handle: LeaseHandle, end: Callable[[LeaseHandle], object]) -> None:
    end(handle)
    with pytest.raises(LeaseLost), transaction.atomic():
        Note.objects.create(token=handle.token)
        handle.guard()
    assert not Note.objects.exists()


def test_the_transaction_goes_on_after_it_was_caught(handle: LeaseHandle) -> None:
    steal("k")
    with transaction.atomic():
        with pytest.raises(LeaseLost):
            handle.guard()
        Note.objects.create(text="usable")
    assert Note.objects.exists()


def test_who_waits_gets_it_after_the_commit(handle: LeaseHandle, other: Session) -> None:
    expire("k")
    with transaction.atomic():
        handle.guard()
        waiting = other.start(Lease.objects.acquire, "k", 60, wait=20)
        Note.objects.create(token=handle.token)
    successor = waiting.result(20)
    assert successor is not None
    assert successor.token > handle.token


def test_force_does_not_get_between_guard_and_commit(handle: LeaseHandle, other: Session) -> None:
    with transaction.atomic():
        handle.guard()
        other.run(Lease.objects.filter(key="k").force_release)
        assert other.run(Lease.objects.acquire, "k", 60) is None
    assert other.run(Lease.objects.acquire, "k", 60) is not None


def test_a_takeover_under_way_is_a_loss_without_a_wait(handle: LeaseHandle, other: Session) -> None:
    expire("k")
    with other.holding(lock_rows), pytest.raises(LeaseLost), transaction.atomic():
        handle.guard()


def test_a_purge_that_comes_too_late_is_no_loss(open_session: Callable[[], Session]) -> None:
    """It has locked the row before it sees that the lease is held again, and keeps the lock to its end."""
    for key in ("first", "k"):
        acquired(key)
        expire(key)
    before, purging, holding = open_session(), open_session(), open_session()
    purging.begin()
    with before.holding(lambda: Lease.objects.select_for_update().get(key="first")):
        purged = purging.start(Lease.objects.purge, 1e-6)
        purging.wait_until_blocked()
        handle = acquired()
    assert purged.result(20) == 1
    written = holding.start(write, handle)
    holding.wait_until_blocked()
    purging.end()
    written.result(20)
    assert Note.objects.get().token == handle.token


def test_a_purge_locks_no_longer_than_a_batch(monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any) -> None:
    monkeypatch.setattr(managers, "BATCH", 2)
    for key in "abc":
        acquired(key)
        expire(key)
    acquired()
    with django_assert_num_queries(5) as captured:
        assert Lease.objects.purge(1e-6) == 3
    assert [entry["sql"].split()[0] for entry in captured.captured_queries] == ["SELECT", "DELETE"] * 2 + ["SELECT"]
    assert Lease.objects.get().key == "k"


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_snapshot_from_before_does_not_help(handle: LeaseHandle, other: Session, level: str) -> None:
    with pytest.raises(LeaseLost), isolated_transaction(isolation_level=level):  # type: ignore[arg-type]
        assert not Note.objects.exists()
        other.run(steal, "k")
        handle.guard()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_refresh_since_the_snapshot_is_no_loss(handle: LeaseHandle, other: Session, level: str) -> None:
    with isolated_transaction(isolation_level=level):  # type: ignore[arg-type]
        assert not Note.objects.exists()
        other.run(handle.refresh)
        handle.guard()


# What the others see


@pytest.fixture
def guarding(handle: LeaseHandle, other: Session) -> Iterator[LeaseHandle]:
    """A lease that has expired while another session has it under guard."""
    with other.holding(handle.guard):
        expire("k")
        yield handle
    assert Lease.objects.holder("k") is None


def test_the_holder_is_named_while_the_guard_keeps_the_lease(guarding: LeaseHandle) -> None:
    holder = holder_of("k")
    assert (holder.token, holder.remaining, holder.under_guard) == (guarding.token, 0, True)
    with pytest.raises(
        LeaseNotAcquired, match=f"has expired, but an open transaction guards its token {guarding.token}"
    ):
        lease("k", 60).__enter__()


def test_the_command_names_it_too(guarding: LeaseHandle, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("leases", "--format", "json")
    (fact,) = json.loads(capsys.readouterr().out)
    assert (fact["token"], fact["state"]) == (guarding.token, "expired, under guard")
    call_command("leases", "--release", "k", "--yes")
    assert f"A transaction guards lease 'k' (token {guarding.token})" in capsys.readouterr().err


def test_a_guard_of_one_key_is_none_of_another(guarding: LeaseHandle) -> None:
    assert Lease.objects.acquire("another", 60)
    assert not holder_of("another").under_guard


# The time limit of its transaction


@pytest.fixture
def limit(db: None) -> str:
    """The setting that ends such a transaction: servers before PostgreSQL 17 limit only how long it is idle."""
    is_known = connection.pg_version >= 170000  # type: ignore[attr-defined]
    return "transaction_timeout" if is_known else "idle_in_transaction_session_timeout"


def limit_after(guard: Callable[[], object], setting: str) -> str:
    with transaction.atomic():
        guard()
        return str(query(f"SHOW {setting}"))


def test_the_transaction_has_the_ttl_from_the_guard_on(handle: LeaseHandle, limit: str) -> None:
    handle.refresh(600)
    assert limit_after(handle.guard, limit) == "1min"
    assert limit_after(lambda: guard("k", handle.token), limit) == "1min"
    assert limit_after(lambda: handle.guard(within=5), limit) == "5s"
    assert query(f"SHOW {limit}") == "0"


def test_a_limit_of_the_sessions_own_that_ends_sooner_stays(handle: LeaseHandle, limit: str) -> None:
    def guard_twice() -> None:
        handle.guard(within=5)
        handle.guard(within=20)

    with session_with(**{limit: "30s"}):
        assert limit_after(handle.guard, limit) == "30s"
        assert limit_after(guard_twice, limit) == "5s"


def test_one_that_ends_later_does_not_keep_the_lease(handle: LeaseHandle, limit: str, other: Session) -> None:
    other.begin()
    other.run(query, "SELECT set_config(%s, '1h', true)", limit)
    other.run(handle.guard, within=0.1)
    until(lambda: query("SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)", other.pid), "its end")
    expire("k")
    assert Lease.objects.acquire("k", 60)
    with pytest.raises(DatabaseError, match="transaction timeout"):
        other.run(query, "SELECT 1")
    other.run(connections.close_all)


def test_an_older_server_limits_time_between_statements(handle: LeaseHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(connections["default"]), "pg_version", 160000)
    assert limit_after(handle.guard, "idle_in_transaction_session_timeout") == "1min"


@pytest.mark.django_db(transaction=False)
def test_the_transaction_of_a_test_is_not_limited(limit: str) -> None:
    with lease("k", 1) as handle, transaction.atomic():
        handle.guard()
        assert query("SELECT current_setting(%s)::interval > interval '1 day'", limit)


def test_another_process_may_guard_by_key_and_token(handle: LeaseHandle) -> None:
    with transaction.atomic():
        guard("k", handle.token)
        guard("k", handle.token)
        with pytest.raises(LeaseLost, match="token 987654321 does not hold it"):
            guard("k", 987654321)


def test_outside_a_transaction_it_is_refused(handle: LeaseHandle) -> None:
    with pytest.raises(TransactionManagementError, match="needs a transaction on database 'default'"):
        handle.guard()
