"""What a rollback has to do with callbacks of a commit, and with copies and threads."""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable

import pytest
from django.db import connection, transaction
from django.test import TestCase

from django_lockstep.errors import StaleVersionError
from tests.django_lockstep.locking.looks import assert_refused, fresh, save_once, statements
from tests.support.sessions import Session
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)


# Callbacks: Django calls them after the commit, ours among them.


def test_a_callback_before_ours_may_save() -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        transaction.on_commit(lambda: save_once(seat, "Bob"))
        save_once(seat)
    assert (seat.version, fresh(seat).version, fresh(seat).guest) == (3, 3, "Bob")


def test_a_callback_after_ours_may_save_too() -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        save_once(seat)
        transaction.on_commit(lambda: save_once(seat, "Bob"))
    save_once(seat, "Cyd")
    assert (seat.version, fresh(seat).version, fresh(seat).guest) == (4, 4, "Cyd")


def test_a_callback_that_saves_in_a_transaction_that_fails_is_refused_afterwards() -> None:
    seat = Seat.objects.create()

    def save_and_fail() -> None:
        with transaction.atomic():
            save_once(seat, "Bob")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        transaction.on_commit(save_and_fail)
        save_once(seat)
    assert fresh(seat).guest == "Ada"
    assert_refused(seat)


@pytest.mark.parametrize("robust", [True, False])
def test_a_callback_that_fails_before_ours_undoes_nothing(robust: bool) -> None:
    seat = Seat.objects.create()

    def fail() -> None:
        raise ZeroDivisionError

    try:
        with transaction.atomic():
            transaction.on_commit(fail, robust=robust)
            save_once(seat)
    except ZeroDivisionError:
        assert not robust
    assert statements(lambda: save_once(seat, "Bob")) == ["UPDATE"]


@pytest.mark.parametrize("execute", [True, False])
def test_callbacks_that_a_test_calls_early_are_no_commit(execute: bool) -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        with TestCase.captureOnCommitCallbacks(execute=execute):
            transaction.on_commit(lambda: save_once(seat, "Bob"))
            save_once(seat)
        save_once(seat, "Cyd")
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            with TestCase.captureOnCommitCallbacks(execute=execute):
                save_once(seat, "Eve")
            _ = 1 / 0
        assert_refused(seat)


def test_writes_between_the_same_savepoints_share_a_callback() -> None:
    seats = [Seat.objects.create(price=10) for _ in range(3)]
    with transaction.atomic():
        for seat in seats * 2:
            assert seat.update_if_unchanged(price=seat.price + 1)
        assert len(connection.run_on_commit) == 1
        with transaction.atomic():
            assert seats[0].update_if_unchanged(price=0)
        assert len(connection.run_on_commit) == 2


# Copies, threads


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_copy_shares_the_doubt(duplicate: Callable[[Seat], Seat], is_committed: bool) -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        save_once(seat)
        double = duplicate(seat)
        transaction.set_rollback(not is_committed)
    if is_committed:
        save_once(double, "Bob")
        with pytest.raises(StaleVersionError):
            save_once(seat, "Cyd")
    else:
        assert_refused(double)


def test_of_a_pickled_one_nothing_is_known() -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        save_once(seat)
        double = pickle.loads(pickle.dumps(seat))  # noqa: S301 - its own
    assert_refused(double)


def test_a_transaction_keeps_no_instance_alive() -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        save_once(seat)
        alive = weakref.ref(seat)
        del seat
        gc.collect()
        assert alive() is None


@pytest.mark.parametrize("is_committed", [True, False])
def test_another_thread_is_told_the_same(open_session: Callable[[], Session], is_committed: bool) -> None:
    seat = Seat.objects.create()

    def write_elsewhere() -> None:
        with transaction.atomic():
            save_once(seat)
            transaction.set_rollback(not is_committed)

    open_session().run(write_elsewhere)
    if is_committed:
        save_once(seat, "Bob")
    else:
        assert_refused(seat)
