"""Retries repeat whole transactions from outside, wait in between, and never hide the last error."""

import asyncio
import pickle
from collections.abc import Iterator
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from concurrency.exceptions import RecordModifiedError
from django.db import OperationalError, connection, connections, transaction
from django.db.transaction import TransactionManagementError
from django.test import TestCase, override_settings
from django.utils.connection import ConnectionDoesNotExist

from django_lockstep.locking import (
    CommittedThenFailed,
    LockNotAvailable,
    RetriesExhausted,
    SerializationFailure,
    StaleVersionError,
    retry_on_conflict,
    retrying,
)
from django_lockstep.locking.conf import without_retry_waits
from django_lockstep.locking.retry import CONFLICTS
from tests.support.sessions import heard, query
from tests.testapps.shop.models import Seat


class Flaky:
    """Something that meets a number of conflicts before it works."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self, value: str = "done") -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return value


@pytest.fixture
def told() -> Iterator[list[dict[str, Any]]]:
    """What the signal told, with the pauses still in place."""
    with heard(retrying) as messages:
        yield messages


@pytest.fixture(autouse=True)
def _no_waits() -> Iterator[None]:
    with override_settings(LOCKSTEP_RETRY_WAITS=False):
        yield


def test_a_conflict_is_tried_again() -> None:
    own = [StaleVersionError(), LockNotAvailable(), SerializationFailure()]
    work = Flaky(*own, RecordModifiedError(target=None))  # the last one is django-concurrency's
    assert retry_on_conflict(work)("value") == "value"
    assert work.calls == 5


def test_other_errors_are_not_tried_again() -> None:
    work = Flaky(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        retry_on_conflict(work)()
    assert work.calls == 1


def test_the_last_error_is_the_cause_and_its_facts_are_carried() -> None:
    errors = [StaleVersionError(pk=1), StaleVersionError(pk=2, expected=3, actual=4)]
    with pytest.raises(RetriesExhausted, match="2 attempts") as caught:
        retry_on_conflict(attempts=2)(Flaky(*errors))()
    assert caught.value.__cause__ is errors[1]
    assert (caught.value.attempts, caught.value.pk, caught.value.expected, caught.value.actual) == (2, 2, 3, 4)


def test_as_an_iterator_it_repeats_a_part_of_a_function() -> None:
    work, ends = Flaky(StaleVersionError()), []
    for attempt in retry_on_conflict(attempts=3):
        with attempt:
            ends.append(work())
    assert (ends, work.calls) == (["done"], 2)


def test_on_narrows_what_is_tried_again() -> None:
    with pytest.raises(LockNotAvailable):
        retry_on_conflict(on=StaleVersionError)(Flaky(LockNotAvailable()))()


@pytest.mark.django_db(transaction=True)
def test_driver_errors_count_as_what_they_are_translated_to() -> None:
    calls = []

    @retry_on_conflict(attempts=3)
    def fail() -> None:
        calls.append(1)
        with transaction.atomic():
            query("DO $$ BEGIN RAISE EXCEPTION 'made up' USING ERRCODE = '40001'; END $$")

    with pytest.raises(RetriesExhausted) as caught:
        fail()
    assert len(calls) == 3
    assert isinstance(caught.value.__cause__, SerializationFailure)
    assert isinstance(caught.value.__cause__.__cause__, OperationalError)


def test_pauses_are_random_below_a_bound_that_doubles_up_to_the_longest(told: list[dict[str, Any]]) -> None:
    errors = [StaleVersionError() for _ in range(200)]
    with override_settings(LOCKSTEP_RETRY_WAITS=True):
        retry_on_conflict(attempts=201, wait_initial=timedelta(microseconds=10), wait_max=0.0001)(Flaky(*errors))()
    assert [entry["attempt"] for entry in told] == list(range(1, 201))
    bounds = [min(0.0001, 0.00001 * 2**n) for n in range(200)]
    assert all(0 <= entry["wait"] <= bound for entry, bound in zip(told, bounds, strict=True))
    late = [entry["wait"] for entry in told[10:]]
    assert min(late) < 0.00004
    assert max(late) > 0.00006


def test_whoever_orders_the_conflicts_takes_the_waits_out_of_a_block_only(told: list[dict[str, Any]]) -> None:
    book = retry_on_conflict(wait_initial=0.0001, wait_max=0.0001)

    with override_settings(LOCKSTEP_RETRY_WAITS=True):
        with without_retry_waits():
            book(Flaky(StaleVersionError()))()
            in_a_thread = Thread(target=book(Flaky(StaleVersionError())))
            in_a_thread.start()
            in_a_thread.join()
        book(Flaky(StaleVersionError()))()

    assert [entry["wait"] > 0 for entry in told] == [False, True, True]


def test_no_attempt_is_begun_after_the_timeout() -> None:
    work = Flaky(*[StaleVersionError() for _ in range(5)])
    with pytest.raises(RetriesExhausted) as caught:
        retry_on_conflict(timeout=1e-9)(work)()
    assert (work.calls, caught.value.attempts) == (1, 1)


@pytest.mark.django_db(transaction=True)
def test_inside_somebodys_transaction_nothing_is_run() -> None:
    work = Flaky()
    with transaction.atomic(), pytest.raises(TransactionManagementError, match="one is open on database 'default'"):
        retry_on_conflict(work)()
    assert work.calls == 0


@pytest.mark.django_db(transaction=True)
def test_an_open_transaction_on_another_database_may_be_declared_harmless() -> None:
    connections["other"] = connection.copy("other")
    try:
        with transaction.atomic():
            assert retry_on_conflict(using="other")(Flaky(StaleVersionError()))() == "done"
    finally:
        del connections["other"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("using", [None, "default"])
def test_without_autocommit_nothing_is_run(using: str | None) -> None:
    work = Flaky()
    connection.ensure_connection()
    connection.set_autocommit(False)
    try:
        with pytest.raises(TransactionManagementError, match="autocommit is off on database 'default'"):
            retry_on_conflict(using=using)(work)()
        with pytest.raises(TransactionManagementError, match="autocommit is off on database 'default'"):
            async_to_sync(retry_on_conflict(using=using)(sync_to_async(work)))()
    finally:
        connection.rollback()
        connection.set_autocommit(True)
    assert work.calls == 0
    assert retry_on_conflict(using=using)(work)() == "done"


def test_a_database_that_the_settings_do_not_know() -> None:
    with pytest.raises(ConnectionDoesNotExist, match="no-such-alias"):
        retry_on_conflict(using="no-such-alias")


class InsideATestCase(TestCase):
    """A ``TestCase`` wraps every test in transactions of its own; they forbid nothing."""

    def test_retries_work(self) -> None:
        self.assertEqual(retry_on_conflict(Flaky(StaleVersionError()))(), "done")

    def test_but_not_inside_an_atomic_of_the_test(self) -> None:
        with transaction.atomic(), self.assertRaises(TransactionManagementError):
            retry_on_conflict(Flaky())()


def test_coroutines_are_repeated_and_give_up_too() -> None:
    work = Flaky(StaleVersionError())

    @retry_on_conflict(attempts=2)
    async def book(value: str) -> str:
        return work(value)

    assert asyncio.run(book("value")) == "value"
    assert work.calls == 2
    work.errors += [StaleVersionError(), StaleVersionError()]
    with pytest.raises(RetriesExhausted):
        asyncio.run(book("value"))


def test_what_sync_to_async_returns_is_repeated() -> None:
    work = Flaky(StaleVersionError())
    assert asyncio.run(retry_on_conflict()(sync_to_async(work))()) == "done"
    assert work.calls == 2


@pytest.mark.parametrize("attempts", [0, -1, 1.5, True, "3"])
def test_attempts_that_make_no_sense_are_refused(attempts: Any) -> None:
    with pytest.raises(ValueError, match="must be a positive integer"):
        retry_on_conflict(attempts=attempts)


@pytest.mark.parametrize("name", ["wait_initial", "wait_max", "timeout"])
def test_durations_that_make_no_sense_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be finite and greater than zero"):
        retry_on_conflict(**{name: -1})  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=f"{name} must be at most 3155760000 seconds"):
        retry_on_conflict(**{name: 1e18})  # type: ignore[call-overload]


def conflict_after_commit() -> None:
    transaction.on_commit(Flaky(StaleVersionError("of another row")))


@pytest.mark.django_db(transaction=True)
def test_what_was_committed_is_not_repeated_for_an_error_of_on_commit() -> None:
    @retry_on_conflict()
    def book() -> None:
        with transaction.atomic():
            Seat.objects.create()
            conflict_after_commit()

    with pytest.raises(CommittedThenFailed, match="was committed, and then StaleVersionError in on_commit") as raised:
        book()
    assert isinstance(raised.value.__cause__, StaleVersionError)
    assert Seat.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_nor_by_an_iterator_by_a_coroutine_or_by_a_retry_of_everything_around() -> None:
    @retry_on_conflict(on=Exception)
    async def book() -> None:
        try:
            await sync_to_async(book_in_a_loop)()
        finally:
            await sync_to_async(connections.close_all)()

    def book_in_a_loop() -> None:
        for attempt in retry_on_conflict():
            with attempt, transaction.atomic():
                Seat.objects.create()
                conflict_after_commit()

    with pytest.raises(CommittedThenFailed):
        asyncio.run(book())
    assert Seat.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_retry_inside_of_on_commit_repeats_its_own_work() -> None:
    work = Flaky(StaleVersionError())
    with transaction.atomic():
        transaction.on_commit(retry_on_conflict(work))
    assert work.calls == 2


def test_an_error_of_on_commit_without_a_retry_is_what_it_was() -> None:
    failed = CommittedThenFailed("The transaction was committed, and then")
    assert not isinstance(failed, CONFLICTS)
    assert str(pickle.loads(pickle.dumps(failed))) == str(failed)  # noqa: S301 - our own
