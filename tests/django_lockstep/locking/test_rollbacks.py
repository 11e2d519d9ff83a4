"""What an instance is after its transaction, or a savepoint, was rolled back."""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import cast

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import TestCase
from django.test.utils import CaptureQueriesContext

from tests.django_lockstep.locking.looks import fresh, statements
from tests.support.sessions import Session
from tests.testapps.shop.models import BoxSeat, Poster, Seat, Ticket

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_savepoint_takes_back_what_it_held_and_no_more() -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        seat.guest = "Ada"
        seat.save()
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            seat.guest = "Bob"
            seat.save()
            assert seat.update_if_unchanged(row="B")
            assert seat.version == 4
            _ = 1 / 0
        assert seat.version == fresh(seat).version == 2
        seat.guest = "Eve"
        seat.save()
    assert (seat.version, fresh(seat).version, fresh(seat).guest) == (3, 3, "Eve")


def test_the_outer_rollback_takes_back_all() -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        for guest in ("Ada", "Bob"):
            with transaction.atomic():
                seat.guest = guest
                seat.save()
        assert seat.update_if_unchanged(row="B")
        transaction.set_rollback(True)
    assert (seat.version, fresh(seat).version) == (1, 1)
    assert seat.row == fresh(seat).row == "A"
    seat.save()
    assert (fresh(seat).guest, fresh(seat).row) == ("Bob", "A")


def test_what_was_assigned_after_a_rolled_back_update_stays() -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        assert seat.update_if_unchanged(row="B", guest="Ada")
        seat.row = "C"
        transaction.set_rollback(True)
    assert (seat.row, seat.guest, seat.version) == ("C", "", 1)


def test_of_several_updates_that_are_rolled_back_the_first_counts() -> None:
    seat = Seat.objects.create(price=1)
    with transaction.atomic():
        for price in (2, 3):
            with transaction.atomic():
                assert seat.update_if_unchanged(price=price)
        transaction.set_rollback(True)
    assert (seat.price, seat.version) == (1, 1)


def test_a_rolled_back_insert_can_be_repeated() -> None:
    seat = Seat(guest="Ada")
    with transaction.atomic():
        seat.save()
        transaction.set_rollback(True)
    assert (seat.version, seat._state.adding) == (0, True)
    seat.save()
    assert fresh(seat).version == 1


@pytest.mark.parametrize("known", [True, False])
def test_a_save_that_fails_in_its_second_table_can_be_repeated(known: bool) -> None:
    seat = BoxSeat.objects.create() if known else BoxSeat()
    before = seat.version
    seat.guest, seat.champagne = "Ada", cast("bool", None)
    with pytest.raises(IntegrityError):
        seat.save()
    assert seat.version == before
    seat.champagne = True
    seat.save()
    assert (fresh(seat).guest, fresh(seat).version, seat.version) == ("Ada", before + 1, before + 1)


def test_a_commit_keeps_everything() -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        seat.guest = "Ada"
        seat.save()
    assert seat.version == fresh(seat).version == 2
    assert statements(seat.save) == ["SELECT"]


def test_it_needs_no_object_to_be_collected() -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        assert seat.update_if_unchanged(guest="Ada")
        kept_by_somebody = list(connection.run_on_commit)
        transaction.set_rollback(True)
    assert kept_by_somebody
    assert (seat.guest, seat.version) == ("", 1)


def test_the_next_write_does_not_begin_with_what_was_rolled_back() -> None:
    seat = Seat.objects.create(price=1)
    with transaction.atomic():
        assert seat.update_if_unchanged(price=50)
        transaction.set_rollback(True)
    assert fresh(seat).update_if_unchanged(guest="Bob")
    assert not seat.update_if_unchanged(guest="Ada")
    assert vars(seat)["price"] == 1


def test_every_kind_of_attribute_is_taken_back_when_it_is_read() -> None:
    first, second = Seat.objects.create(), Seat.objects.create()
    poster = Poster.objects.create(seat=first, picture="old.png")
    with transaction.atomic():
        assert poster.update_if_unchanged(seat_id=second.pk, picture="new.png", caption="New")
        assert (poster.seat, poster.picture.name, poster.caption) == (second, "new.png", "New")
        transaction.set_rollback(True)
    assert (poster.seat, poster.picture.name, poster.caption) == (first, "old.png", "")
    poster.save()
    assert (fresh(poster).seat, fresh(poster).picture.name, poster.version) == (first, "old.png", 1)


def test_a_class_still_knows_its_fields() -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        assert seat.update_if_unchanged(guest="Ada")
    assert [Seat.guest.field.name, Seat.version.field.name] == ["guest", "version"]
    with CaptureQueriesContext(connection) as captured:
        assert Seat.objects.only("id").get().guest == "Ada"
    assert len(captured) == 2


def test_what_was_read_again_after_a_write_goes_with_it() -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        assert seat.update_if_unchanged(row="B")
        Seat.objects.update(guest="Ada")
        seat.refresh_from_db()
        assert (seat.guest, seat.version) == ("Ada", 3)
        transaction.set_rollback(True)
    assert (seat.guest, seat.row, seat.version) == ("", "A", 1)


def test_a_commit_that_fails_is_a_rollback() -> None:
    seat = Seat.objects.create()
    with pytest.raises(IntegrityError), transaction.atomic():
        assert seat.update_if_unchanged(guest="Ada")
        Ticket.objects.create(seat_id=seat.pk + 1)
    assert (seat.guest, seat.version) == ("", 1)


# Without atomic()


def test_a_savepoint_that_is_rolled_back_by_hand_takes_back_what_it_held_and_no_more() -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        seat.guest = "Ada"
        seat.save()
        first = transaction.savepoint()
        assert seat.update_if_unchanged(row="B")
        second = transaction.savepoint()
        assert seat.update_if_unchanged(row="C")
        transaction.savepoint_rollback(second)
        assert (seat.row, seat.version) == ("B", 3) == (fresh(seat).row, fresh(seat).version)
        assert seat.update_if_unchanged(row="D")
        transaction.savepoint_rollback(first)
        assert (seat.row, seat.version) == ("A", 2) == (fresh(seat).row, fresh(seat).version)
        seat.row = "E"
        seat.save()
    assert (seat.row, seat.guest, seat.version) == ("E", "Ada", 3)
    assert (fresh(seat).row, fresh(seat).version) == ("E", 3)


def test_a_savepoint_that_is_released_by_hand_shares_the_fate_of_what_is_around_it() -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        outer = transaction.savepoint()
        inner = transaction.savepoint()
        assert seat.update_if_unchanged(row="B")
        transaction.savepoint_commit(inner)
        assert seat.version == 2
        transaction.savepoint_rollback(outer)
        assert (seat.row, seat.version) == ("A", 1)


def test_atomic_inside_of_a_savepoint_by_hand_goes_with_it() -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        outer = transaction.savepoint()
        with transaction.atomic():
            assert seat.update_if_unchanged(row="B")
        transaction.savepoint_rollback(outer)
        assert (seat.row, seat.version) == ("A", 1)
        assert seat.update_if_unchanged(row="C")
    assert (seat.row, seat.version) == ("C", 2) == (fresh(seat).row, fresh(seat).version)


@pytest.fixture
def by_hand() -> Iterator[None]:
    """Switch autocommit off, and back on."""
    transaction.set_autocommit(False)
    try:
        yield
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


def test_without_autocommit_a_rollback_takes_back(by_hand: None) -> None:
    seat = Seat.objects.create()
    transaction.commit()
    seat.guest = "Ada"
    seat.save()
    assert seat.version == 2
    transaction.rollback()
    assert seat.version == fresh(seat).version == 1
    seat.save()
    transaction.commit()
    assert (fresh(seat).guest, fresh(seat).version, seat.version) == ("Ada", 2, 2)


def test_without_autocommit_a_rollback_leaves_what_was_committed_before(by_hand: None) -> None:
    seat, other = Seat.objects.create(), Seat.objects.create()
    assert seat.update_if_unchanged(row="B")
    transaction.commit()
    assert other.update_if_unchanged(row="C")
    transaction.rollback()
    assert [(each.row, each.version) for each in (seat, other)] == [("B", 2), ("A", 1)]
    assert seat.update_if_unchanged(row="D")
    transaction.commit()
    transaction.set_autocommit(True)
    assert (seat.row, seat.version) == ("D", 3)
    transaction.set_autocommit(False)


@pytest.mark.parametrize("end", [transaction.commit, transaction.rollback])
def test_without_autocommit_atomic_and_its_end_are_told_apart(by_hand: None, end: Callable[[], None]) -> None:
    seat = Seat.objects.create()
    transaction.commit()
    with transaction.atomic():
        assert seat.update_if_unchanged(row="B")
    end()
    assert (seat.row, seat.version) == (fresh(seat).row, fresh(seat).version)
    assert seat.update_if_unchanged(row="C")
    transaction.rollback()
    assert (seat.row, seat.version) == (fresh(seat).row, fresh(seat).version)


@pytest.mark.parametrize("end", [transaction.commit, transaction.rollback])
def test_atomic_is_as_before_once_autocommit_is_on_again(end: Callable[[], None]) -> None:
    seat, other = Seat.objects.create(), Seat.objects.create()
    transaction.set_autocommit(False)
    assert other.update_if_unchanged(row="B")
    end()
    transaction.set_autocommit(True)
    with transaction.atomic():
        assert seat.update_if_unchanged(row="C")
        transaction.set_rollback(True)
    assert [(each.row, each.version) for each in (seat, other)] == [
        (fresh(each).row, fresh(each).version) for each in (seat, other)
    ]


def test_without_autocommit_a_savepoint_is_taken_back_too(by_hand: None) -> None:
    seat = Seat.objects.create()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        assert seat.update_if_unchanged(row="B")
        _ = 1 / 0
    assert (seat.row, seat.version) == ("A", 1)
    with transaction.atomic():
        assert seat.update_if_unchanged(row="C")
    transaction.rollback()
    assert not Seat.objects.exists()
    assert (seat.version, seat._state.adding) == (0, True)


# Callbacks: Django calls them after the commit, ours among them.


def test_a_callback_before_ours_finds_the_instance_as_it_was_committed() -> None:
    seat = Seat.objects.create()
    seen = []

    def go_on() -> None:
        seen.append((seat.guest, seat.version))
        assert seat.update_if_unchanged(row="B")

    with transaction.atomic():
        transaction.on_commit(go_on)
        seat.guest = "Ada"
        seat.save()
    assert seen == [("Ada", 2)]
    assert (seat.version, seat.row) == (fresh(seat).version, fresh(seat).row) == (3, "B")


def test_a_callback_that_fails_before_ours_takes_nothing_back() -> None:
    seat = Seat.objects.create()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        transaction.on_commit(lambda: 1 // 0)
        assert seat.update_if_unchanged(guest="Ada")
    assert (seat.guest, seat.version) == ("Ada", 2) == (fresh(seat).guest, fresh(seat).version)


def test_a_callback_of_the_next_transaction_finds_the_instance_taken_back() -> None:
    seat = Seat.objects.create()
    seen = []
    with transaction.atomic():
        assert seat.update_if_unchanged(guest="Ada")
        transaction.set_rollback(True)
    with transaction.atomic():
        transaction.on_commit(lambda: seen.append((seat.guest, seat.version)))
    assert seen == [("", 1)]


def test_callbacks_that_a_test_calls_early_are_no_commit() -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        with transaction.atomic():
            with TestCase.captureOnCommitCallbacks(execute=True):
                assert seat.update_if_unchanged(guest="Ada")
            with pytest.raises(ZeroDivisionError), transaction.atomic():
                assert seat.update_if_unchanged(guest="Bob")
                _ = 1 / 0
            assert (seat.guest, seat.version) == ("Ada", 2)
            assert seat.update_if_unchanged(row="B")
            transaction.set_rollback(True)
        assert (seat.row, seat.version) == ("A", 2)


def test_writes_between_the_same_savepoints_share_a_callback() -> None:
    seats = [Seat.objects.create(price=10) for _ in range(3)]
    with transaction.atomic():
        for seat in seats * 2:
            assert seat.update_if_unchanged(price=seat.price + 1)
        assert len(connection.run_on_commit) == 1
        with transaction.atomic():
            assert seats[0].update_if_unchanged(price=0)
        assert len(connection.run_on_commit) == 2
        transaction.set_rollback(True)
    assert [(seat.price, seat.version) for seat in seats] == [(10, 1)] * 3


def test_many_writes_of_one_instance_are_taken_back_one_savepoint_at_a_time() -> None:
    seat = Seat.objects.create(price=0)
    with transaction.atomic():
        for price in range(1, 2000):
            with transaction.atomic(savepoint=False):
                assert seat.update_if_unchanged(price=price)
        transaction.set_rollback(True)
    assert (seat.price, seat.version) == (0, 1)


# Copies


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_a_copy_is_taken_back_too(duplicate: Callable[[Seat], Seat]) -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        assert seat.update_if_unchanged(guest="Ada")
        double = duplicate(seat)
        transaction.set_rollback(True)
    assert [(each.guest, each.version) for each in (double, seat)] == [("", 1)] * 2


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_a_copy_that_is_committed_stays(duplicate: Callable[[Seat], Seat]) -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        assert seat.update_if_unchanged(guest="Ada")
        double = duplicate(seat)
    assert [(each.guest, each.version) for each in (double, seat)] == [("Ada", 2)] * 2
    assert double.update_if_unchanged(guest="Bob")


def test_an_instance_travels_out_of_a_transaction_as_it_is() -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        for _ in range(3):
            with transaction.atomic():
                assert seat.update_if_unchanged(guest="Ada")
        double = pickle.loads(pickle.dumps(seat))  # noqa: S301 - its own
        transaction.set_rollback(True)
    assert (double.guest, double.version) == ("Ada", 4)


def test_a_transaction_keeps_no_instance_alive() -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        assert seat.update_if_unchanged(guest="Ada")
        alive = weakref.ref(seat)
        del seat
        gc.collect()
        assert alive() is None


def test_a_rollback_is_noticed_in_another_thread(open_session: Callable[[], Session]) -> None:
    seat = Seat.objects.create()

    def write_and_fail() -> None:
        with transaction.atomic():
            assert seat.update_if_unchanged(guest="Ada")
            transaction.set_rollback(True)

    open_session().run(write_and_fail)
    assert (seat.guest, seat.version) == ("", 1)
