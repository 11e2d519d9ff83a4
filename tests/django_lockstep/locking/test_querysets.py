"""The manager of versioned models: locks, guarded writes and creations by key, one or many."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core import checks
from django.db import DataError, IntegrityError, connection, models, transaction
from django.test.utils import CaptureQueriesContext, isolate_apps

from django_lockstep.locking import VersionedModel, VersionField, lock_row, lock_rows
from tests.django_lockstep.locking.looks import fresh
from tests.support.sessions import Session
from tests.testapps.shop.models import BoxSeat, OddSeat, PairSeat, Seat, StampedSeat, UuidSeat

# lock


def test_one_key_gives_an_instance_several_a_list(seats: list[Seat]) -> None:
    a, b, _ = seats
    with transaction.atomic():
        assert Seat.objects.lock(a.pk) == a
        assert Seat.objects.lock_many([b.pk, a.pk]) == [a, b]
        assert Seat.objects.lock_many({b.pk}) == [b]
        assert Seat.objects.lock_many(Seat.objects.filter(row="C").values_list("pk", flat=True)) == [seats[2]]


# update_if_unchanged


def test_it_returns_the_new_version_or_none(seats: list[Seat]) -> None:
    pk = seats[0].pk
    assert Seat.objects.update_if_unchanged(pk, 1, guest="Ada") == 2
    assert Seat.objects.update_if_unchanged(pk, 1, guest="Bob") is None
    assert Seat.objects.update_if_unchanged(0, 1, guest="Bob") is None
    assert (fresh(seats[0]).guest, fresh(seats[0]).version) == ("Ada", 2)


# put_if_unchanged


def test_it_creates_only_what_nobody_has(db: None) -> None:
    assert OddSeat.objects.put_if_unchanged("A", 0, guest="Ada") == 1
    assert OddSeat.objects.put_if_unchanged("A", 0, guest="Bob") is None
    assert OddSeat.objects.put_if_unchanged("A", 1, guest="Eve") == 2
    assert OddSeat.objects.put_if_unchanged("A", 1, guest="Bob") is None
    assert OddSeat.objects.get().guest == "Eve"


def test_what_was_seen_and_is_gone_is_a_conflict(db: None) -> None:
    OddSeat.objects.put_if_unchanged("A", 0)
    OddSeat.objects.all().delete()
    with transaction.atomic():
        assert OddSeat.objects.put_if_unchanged("A", 1, guest="Ada") is None
        assert not OddSeat.objects.exists()


def test_values_that_break_another_rule_are_an_error(db: None) -> None:
    with pytest.raises(IntegrityError, match="null"), transaction.atomic():
        Seat.objects.put_if_unchanged(5, 0, guest=None)


def test_of_two_creators_at_the_same_time_one_wins(other: Session) -> None:
    with transaction.atomic():
        assert OddSeat.objects.put_if_unchanged("A", 0, guest="Ada") == 1
        late = other.start(OddSeat.objects.put_if_unchanged, "A", 0, guest="Bob")
        other.wait_until_blocked()
    assert late.result() is None
    assert OddSeat.objects.get().guest == "Ada"


# update_many_if_unchanged


def test_those_that_lost_are_told_the_others_are_written(seats: list[Seat]) -> None:
    a, b, c = seats
    Seat.objects.filter(pk=b.pk).update(guest="Eve")
    with CaptureQueriesContext(connection) as captured:
        lost = Seat.objects.update_many_if_unchanged(
            [
                (c.pk, 1, {"guest": "Cy", "price": "3.5"}),
                (b.pk, 1, {"guest": "Bob"}),
                (a.pk, 1, {"row": "Z"}),
                (0, 1, {}),
            ]
        )
    assert (lost, len(captured)) == ([b.pk, 0], 1)
    rows = [(fresh(s).row, fresh(s).guest, str(fresh(s).price), fresh(s).version) for s in seats]
    assert rows == [("Z", "", "10.00", 2), ("B", "Eve", "10.00", 2), ("C", "Cy", "3.50", 2)]


def test_values_of_every_kind_arrive(db: None) -> None:
    first, second = UuidSeat.objects.create(), UuidSeat.objects.create()
    assert UuidSeat.objects.update_many_if_unchanged([(str(first.pk), 1, {"guest": "Ada"})]) == []
    assert (fresh(first).guest, fresh(second).guest) == ("Ada", "")
    seat = Seat.objects.create()
    assert Seat.objects.update_many_if_unchanged([(seat.pk, 1, {"wishes": ["x", {"y": None}]})]) == []
    assert fresh(seat).wishes == ["x", {"y": None}]
    odd = OddSeat.objects.create(code="A")
    assert OddSeat.objects.update_many_if_unchanged([("A", 1, {"guest": "Ada"})]) == []
    assert (fresh(odd).guest, fresh(odd).version) == ("Ada", 2)
    stamped = StampedSeat.objects.create()
    assert StampedSeat.objects.update_many_if_unchanged([(stamped.pk, 1, {"booked_at": None})]) == []
    assert fresh(stamped).touched_at > stamped.touched_at


def test_what_is_too_long_is_refused_and_not_cut(db: None) -> None:
    seat, odd = Seat.objects.create(row="A"), OddSeat.objects.create(code="x" * 20)
    with pytest.raises(DataError), transaction.atomic():
        Seat.objects.update_many_if_unchanged([(seat.pk, 1, {"row": "ABCDEFGHIJK"})])
    longer = odd.code + "x"
    assert OddSeat.objects.update_many_if_unchanged([(longer, 1, {"guest": "Ada"})]) == [longer]
    assert (fresh(seat).row, fresh(odd).guest) == ("A", "")


def test_rows_in_two_tables_are_written_too(db: None) -> None:
    boxes = [BoxSeat.objects.create() for _ in range(2)]
    boxes[1].update_if_unchanged(guest="Eve")
    lost = BoxSeat.objects.update_many_if_unchanged([(b.pk, 1, {"champagne": True, "guest": "Ada"}) for b in boxes])
    assert lost == [boxes[1].pk]
    assert BoxSeat.objects.update_many_if_unchanged([]) == []
    assert (fresh(boxes[0]).champagne, fresh(boxes[0]).guest, fresh(boxes[0]).version) == (True, "Ada", 2)
    assert fresh(boxes[1]).champagne is False


def test_one_key_twice_and_expressions_are_refused(seats: list[Seat]) -> None:
    from django.db.models import F

    pk = seats[0].pk
    with pytest.raises(ValueError, match="given twice"):
        Seat.objects.update_many_if_unchanged([(pk, 1, {"row": "Y"}), (str(pk), 1, {"row": "Z"})])
    with pytest.raises(ValueError, match="expressions"):
        Seat.objects.update_many_if_unchanged([(pk, 1, {"price": F("price") + 1})])


def test_a_row_that_changes_while_it_is_waited_for_loses(seats: list[Seat], other: Session) -> None:
    changes: list[Any] = [(seat.pk, 1, {"guest": "Ada"}) for seat in seats]
    with transaction.atomic():
        seats[1].update_if_unchanged(guest="Eve")
        late = other.start(Seat.objects.update_many_if_unchanged, changes)
        other.wait_until_blocked()
    assert late.result() == [seats[1].pk]
    assert [fresh(seat).guest for seat in seats] == ["Ada", "Eve", "Ada"]


def test_batches_in_opposite_order_never_deadlock(seats: list[Seat], open_session: Callable[[], Session]) -> None:
    def write(pks: list[int]) -> int:
        rows = Seat.objects.in_bulk(pks)
        return len(Seat.objects.update_many_if_unchanged([(pk, rows[pk].version, {"guest": "x"}) for pk in pks]))

    pks = [seat.pk for seat in seats]
    first, second = open_session(), open_session()
    ends = [end for _ in range(25) for end in (first.start(write, pks), second.start(write, pks[::-1]))]
    assert all(end.result() in {0, 1, 2, 3} for end in ends)


@pytest.mark.django_db
@pytest.mark.parametrize("version", [-1, True, "1", 1.0, None, 2**63 - 1, 2**70])
def test_what_is_no_version_is_refused_before_any_sql(seat: Seat, version: Any) -> None:
    writes: list[Callable[[], object]] = [
        lambda: Seat.objects.update_if_unchanged(seat.pk, version, guest="Ada"),
        lambda: Seat.objects.put_if_unchanged(seat.pk, version, guest="Ada"),
        lambda: Seat.objects.update_many_if_unchanged([(seat.pk, version, {"guest": "Ada"})]),
    ]
    for write in writes:
        with CaptureQueriesContext(connection) as sent, pytest.raises(ValueError, match="a version must be an integer"):
            write()
        assert not sent


@pytest.mark.django_db
@pytest.mark.parametrize(("model", "key"), [(OddSeat, "a\0"), (Seat, "seven"), (UuidSeat, "7"), (PairSeat, ("\0", 1))])
def test_what_is_no_key_is_refused_before_any_sql(model: Any, key: Any) -> None:
    for write in (
        lambda: lock_row(model, key),
        lambda: model.objects.update_if_unchanged(key, 1, guest="Ada"),
        lambda: model.objects.put_if_unchanged(key, 0, guest="Ada"),
        lambda: model.objects.update_many_if_unchanged([(key, 1, {"guest": "Ada"})]),
    ):
        with CaptureQueriesContext(connection) as sent, pytest.raises(ValueError, match="is not a primary key of shop"):
            write()
        assert not sent


# A key of several columns is taken wherever one of a single column is


@pytest.fixture
def pair_seats(db: None) -> list[PairSeat]:
    return [PairSeat.objects.create(hall=hall, number=number) for hall, number in [("B", 1), ("A", 2), ("A", 1)]]


def test_rows_are_locked_in_the_order_of_their_keys(pair_seats: list[PairSeat]) -> None:
    keys = [seat.pk for seat in pair_seats]
    with CaptureQueriesContext(connection) as sent:
        assert [row.pk for row in lock_rows(PairSeat, keys)] == sorted(keys)
    assert "FOR NO KEY UPDATE" in sent[0]["sql"]
    assert lock_row(PairSeat, ("A", "2")) == pair_seats[1], "parts are converted by their fields"
    assert PairSeat.objects.lock(["B", 1]) == pair_seats[0]
    assert lock_row(pair_seats[2]) is pair_seats[2]


def test_what_is_no_key_is_refused(pair_seats: list[PairSeat]) -> None:
    for key in [("A",), ("A", 1, 1), 7, None]:
        with pytest.raises(ValueError, match=r"a primary key of shop\.PairSeat needs 2 parts"):
            lock_row(PairSeat, key)
    with pytest.raises(PairSeat.DoesNotExist, match=r"shop.PairSeat \('A', 9\) does not exist"):
        lock_row(PairSeat, ("A", 9))


def test_many_are_written_in_one_statement(pair_seats: list[PairSeat]) -> None:
    PairSeat.objects.filter(pk=pair_seats[1].pk).update(guest="Eve")
    changes: list[Any] = [(seat.pk, 1, {"guest": "Ada"}) for seat in pair_seats]
    with CaptureQueriesContext(connection) as sent:
        assert PairSeat.objects.update_many_if_unchanged(changes) == [("A", 2)]
    assert len(sent) == 1
    assert [(fresh(seat).guest, fresh(seat).version) for seat in pair_seats] == [("Ada", 2), ("Eve", 2), ("Ada", 2)]
    with pytest.raises(ValueError, match="twice"):
        PairSeat.objects.update_many_if_unchanged([(("A", 1), 2, {}), (["A", "1"], 2, {})])


def test_a_part_of_the_key_is_no_value(pair_seats: list[PairSeat]) -> None:
    with pytest.raises(ValueError, match="number identifies the row"):
        pair_seats[0].update_if_unchanged(number=5)
    with pytest.raises(ValueError, match="hall identifies the row"):
        PairSeat.objects.update_if_unchanged(("B", 1), 1, hall="C")


def test_a_changed_part_makes_another_row(pair_seats: list[PairSeat]) -> None:
    seat = fresh(pair_seats[0])
    seat.number = 9
    seat.save()
    assert (seat.version, PairSeat.objects.count(), fresh(pair_seats[0]).version) == (1, 4, 1)


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
