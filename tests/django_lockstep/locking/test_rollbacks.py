"""What an instance is after its transaction, or a savepoint, was rolled back."""

from typing import cast

import pytest
from django.db import IntegrityError, transaction

from tests.django_lockstep.locking.looks import fresh, statements
from tests.testapps.shop.models import BoxSeat, Seat

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
