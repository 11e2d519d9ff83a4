"""What is written under guard is written by the holder, or not at all."""

from collections.abc import Callable

import pytest
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from django_lockstep.leases import LeaseHandle, LeaseLost, guard
from django_lockstep.leases.models import Lease
from django_lockstep.leases.testing import expire, rob
from django_lockstep.locking import transaction as isolated
from tests.support.sessions import Session
from tests.testapps.reports.models import Note

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def handle(transactional_db: None) -> LeaseHandle:
    handle = Lease.objects.acquire("k", 60)
    assert handle is not None
    return handle


def write(handle: LeaseHandle) -> None:
    with transaction.atomic():
        handle.guard()
        Note.objects.create(token=handle.token)


def test_the_holder_writes(handle: LeaseHandle) -> None:
    write(handle)
    assert Note.objects.get().token == handle.token


def test_it_is_one_statement_that_locks_no_more_than_the_key(handle: LeaseHandle) -> None:
    with transaction.atomic(), CaptureQueriesContext(connection) as captured:
        handle.guard()
    (entry,) = captured
    assert entry["sql"].strip().endswith("FOR KEY SHARE SKIP LOCKED")


def purge() -> None:
    expire("k")
    Lease.objects.purge(1e-6)


@pytest.mark.parametrize(
    "end",
    [
        lambda handle: rob("k"),
        lambda handle: handle.release(),
        lambda handle: Lease.objects.filter(key="k").force_release(),
        lambda handle: purge(),
    ],
    ids=["robbed", "released", "forced", "purged"],
)
def test_who_no_longer_holds_it_writes_nothing(handle: LeaseHandle, end: Callable[[LeaseHandle], object]) -> None:
    end(handle)
    with pytest.raises(LeaseLost), transaction.atomic():
        Note.objects.create(token=handle.token)
        handle.guard()
    assert not Note.objects.exists()


def test_the_transaction_goes_on_after_it_was_caught(handle: LeaseHandle) -> None:
    rob("k")
    with transaction.atomic():
        with pytest.raises(LeaseLost):
            handle.guard()
        Note.objects.create(text="usable")
    assert Note.objects.exists()


def test_nobody_takes_it_over_before_the_commit(handle: LeaseHandle, other: Session) -> None:
    expire("k")
    with transaction.atomic():
        handle.guard()
        assert other.run(Lease.objects.acquire, "k", 60) is None
        Note.objects.create(token=handle.token)
    assert other.run(Lease.objects.acquire, "k", 60) is not None


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
    other.begin()
    other.run(lambda: list(Lease.objects.select_for_update().filter(key="k")))
    with pytest.raises(LeaseLost), transaction.atomic():
        handle.guard()
    other.end()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_snapshot_from_before_does_not_help(handle: LeaseHandle, other: Session, level: str) -> None:
    with pytest.raises(LeaseLost), isolated(isolation_level=level):  # type: ignore[arg-type]
        assert not Note.objects.exists()
        other.run(rob, "k")
        handle.guard()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_refresh_since_the_snapshot_is_no_loss(handle: LeaseHandle, other: Session, level: str) -> None:
    with isolated(isolation_level=level):  # type: ignore[arg-type]
        assert not Note.objects.exists()
        other.run(handle.refresh)
        handle.guard()


def test_another_process_may_guard_by_key_and_token(handle: LeaseHandle) -> None:
    with transaction.atomic():
        guard("k", handle.token)
        Lease.objects.guard("k", handle.token)
        with pytest.raises(LeaseLost, match="token 987654321 does not hold it"):
            guard("k", 987654321)


def test_outside_a_transaction_it_is_refused(handle: LeaseHandle) -> None:
    with pytest.raises(TransactionManagementError, match="needs a transaction on database 'default'"):
        handle.guard()


@pytest.mark.parametrize("token", [0, -1, True, "7"])
def test_what_is_no_token_is_named(token: object) -> None:
    with transaction.atomic(), pytest.raises(ValueError, match="token must be a whole number of at least 1"):
        guard("k", token)  # type: ignore[arg-type]
