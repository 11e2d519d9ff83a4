"""A key of several columns is taken wherever one of a single column is."""

from typing import Any

import pytest
from django.core import checks
from django.db import connection, models
from django.test.utils import CaptureQueriesContext, isolate_apps

from django_lockstep.locking import VersionedModel, VersionField, lock_row, lock_rows
from tests.django_lockstep.locking.looks import fresh
from tests.testapps.shop.models import PairSeat

pytestmark = pytest.mark.django_db


@pytest.fixture
def seats() -> list[PairSeat]:
    return [PairSeat.objects.create(hall=hall, number=number) for hall, number in [("B", 1), ("A", 2), ("A", 1)]]


def test_rows_are_locked_in_the_order_of_their_keys(seats: list[PairSeat]) -> None:
    keys = [seat.pk for seat in seats]
    with CaptureQueriesContext(connection) as sent:
        assert [row.pk for row in lock_rows(PairSeat, keys)] == sorted(keys)
    assert "FOR NO KEY UPDATE" in sent[0]["sql"]
    assert lock_row(PairSeat, ("A", "2")) == seats[1], "parts are converted by their fields"
    assert PairSeat.objects.lock(["B", 1]) == seats[0]
    assert lock_row(seats[2]) is seats[2]


def test_what_is_no_key_is_refused(seats: list[PairSeat]) -> None:
    for key in [("A",), ("A", 1, 1), 7, None]:
        with pytest.raises(ValueError, match=r"a primary key of shop\.PairSeat needs 2 parts"):
            lock_row(PairSeat, key)
    with pytest.raises(PairSeat.DoesNotExist, match=r"shop.PairSeat \('A', 9\) does not exist"):
        lock_row(PairSeat, ("A", 9))


def test_many_are_written_in_one_statement(seats: list[PairSeat]) -> None:
    PairSeat.objects.filter(pk=seats[1].pk).update(guest="Eve")
    changes: list[Any] = [(seat.pk, 1, {"guest": "Ada"}) for seat in seats]
    with CaptureQueriesContext(connection) as sent:
        assert PairSeat.objects.update_many_if_unchanged(changes) == [("A", 2)]
    assert len(sent) == 1
    assert [(fresh(seat).guest, fresh(seat).version) for seat in seats] == [("Ada", 2), ("Eve", 2), ("Ada", 2)]
    with pytest.raises(ValueError, match="twice"):
        PairSeat.objects.update_many_if_unchanged([(("A", 1), 2, {}), (["A", "1"], 2, {})])


def test_a_part_of_the_key_is_no_value(seats: list[PairSeat]) -> None:
    with pytest.raises(ValueError, match="number identifies the row"):
        seats[0].update_if_unchanged(number=5)
    with pytest.raises(ValueError, match="hall identifies the row"):
        PairSeat.objects.update_if_unchanged(("B", 1), 1, hall="C")


def test_a_changed_part_makes_another_row(seats: list[PairSeat]) -> None:
    seat = fresh(seats[0])
    seat.number = 9
    seat.save()
    assert (seat.version, PairSeat.objects.count(), fresh(seats[0]).version) == (1, 4, 1)


@isolate_apps("tests.testapps.shop")
def test_a_part_of_the_key_cannot_be_uncounted() -> None:
    class Pair(VersionedModel):
        pk = models.CompositePrimaryKey("a", "b")
        a: Any = models.IntegerField()
        b: Any = models.IntegerField()
        version = VersionField(start=1, uncounted=["a"])

        class Meta:
            app_label = "shop"

    assert [message.id for message in Pair.check() if isinstance(message, checks.CheckMessage)] == ["lockstep.E040"]
