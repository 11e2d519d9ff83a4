"""Rows that a query finds are locked, updated and claimed in an order, each once."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import NotSupportedError, connection, transaction
from django.db.models import Count, F
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from django_lockstep.lab.explorer import Scenario, explore
from django_lockstep.locking import LockNotAvailable, claim, lock_rows, update_in_order
from tests.support.sessions import Session, query
from tests.testapps.shop.models import BoxSeat, Order, PairSeat, Seat, Stage, Ticket


@pytest.fixture
def seats(transactional_db: None) -> list[Seat]:
    """Rows whose order in the table is not that of their keys."""
    query("TRUNCATE shop_seat CASCADE")  # of rows that earlier tests deleted, the places would be taken again
    seats = [Seat.objects.create(row=name) for name in "ABC"]
    Seat.objects.filter(pk=seats[0].pk).update(price=20)  # its newest version comes last
    assert [seat.row for seat in Seat.objects.order_by(*())] == ["B", "C", "A"]
    return seats


def free(other: Session) -> list[str]:
    """Return the rows of the seats that no transaction has locked."""
    with transaction.atomic():
        return [seat.row for seat in claim(Seat.objects.all(), 9)]


@pytest.mark.parametrize(
    "write",
    [lock_rows, lambda rows: rows.update_in_order(guest="Ada"), lambda rows: update_in_order(rows, guest="Ada")],
    ids=["lock_rows", "update_in_order", "the function"],
)
def test_what_a_query_finds_is_locked_in_key_order(seats: list[Seat], other: Session, write: Any) -> None:
    def act() -> None:
        with transaction.atomic():
            write(Seat.objects.filter(price__gt=0))

    with transaction.atomic():
        lock_rows(Seat, [seats[1].pk])
        waiting = other.start(act)
        other.wait_until_blocked()
        assert free(other) == ["B", "C"]  # B is ours, A was locked before it
    waiting.result()


def test_rows_that_no_longer_match_are_left_out(seats: list[Seat], other: Session) -> None:
    def take() -> tuple[int, int]:
        empty = Seat.objects.filter(guest="")
        with transaction.atomic():
            return empty.update_in_order(guest="Eve"), len(lock_rows(Seat.objects.filter(guest="")))

    with transaction.atomic():
        Seat.objects.filter(pk=seats[1].pk).update(guest="Ada")
        waiting = other.start(take)
        other.wait_until_blocked()
    assert waiting.result() == (2, 0)
    assert list(Seat.objects.order_by("pk").values_list("guest", "version")) == [("Eve", 3), ("Ada", 2), ("Eve", 2)]


def test_it_writes_the_row_as_it_is_after_the_wait(seats: list[Seat], other: Session) -> None:
    with transaction.atomic():
        Seat.objects.filter(pk=seats[1].pk).update(price=F("price") + 1)
        waiting = other.start(update_in_order, Seat.objects.filter(price__gt=0), price=F("price") + 10)
        other.wait_until_blocked()
    assert waiting.result() == 3
    assert list(Seat.objects.order_by("pk").values_list("price", flat=True)) == [30, 21, 20]


def test_a_row_that_a_join_finds_twice_is_one_and_joined_rows_are_not_locked(seats: list[Seat], other: Session) -> None:
    orders = [Order.objects.create(seat=seats[0], dish="soup") for _ in range(2)]
    served = Seat.objects.filter(order__dish="soup").annotate(twice=F("price") * 2).filter(twice__gt=0)
    with other.holding(lock_rows, Order, [order.pk for order in orders]), transaction.atomic():
        assert lock_rows(served, nowait=True) == [seats[0]]
        assert update_in_order(served, guest="Ada") == 1
    # An outer join whose nullable side could not be locked.
    assert update_in_order(Ticket.objects.select_related("seat").filter(seat__guest=None), seat=seats[0]) == 0


@pytest.mark.parametrize("model", [BoxSeat, Stage, PairSeat])
def test_rows_of_every_kind_are_updated(transactional_db: None, model: Any) -> None:
    keys = [{"hall": "A", "number": number} for number in range(2)] if model is PairSeat else [{}, {}]
    for key in keys:
        model.objects.create(**key)
    with CaptureQueriesContext(connection) as captured:
        assert model.objects.filter(guest="").update_in_order(guest="Ada") == 2
    assert captured.captured_queries[1]["sql"].count("FOR NO KEY UPDATE OF") == 1
    assert list(model.objects.values_list("guest", "version")) == [("Ada", 2)] * 2


def test_it_has_an_asynchronous_sister(seats: list[Seat]) -> None:
    assert async_to_sync(Seat.objects.none().aupdate_in_order)(guest="Ada") == 0
    assert async_to_sync(Seat.objects.all().aupdate_in_order)(guest="Ada") == 3


def test_what_would_be_a_guess_is_refused(seats: list[Seat]) -> None:
    first = Seat.objects.all()[:1]
    with pytest.raises(TypeError, match=r"sliced cannot be updated: claim\(\)"):
        first.update_in_order(guest="Ada")
    for target in (first, Seat, Seat.objects):
        with pytest.raises(TypeError, match="needs the keys of the rows of"), transaction.atomic():
            lock_rows(target)
    for count in (0, -1):
        with pytest.raises(ValueError, match=f"count must be at least 1, not {count}"):
            claim(Seat.objects.all(), count)
    with pytest.raises(TransactionManagementError, match="shop.Seat needs a transaction"):
        claim(Seat.objects.all())
    with pytest.raises(NotSupportedError, match="GROUP BY"), transaction.atomic():
        lock_rows(Seat.objects.annotate(orders=Count("order")))


def test_claims_are_those_nobody_has_in_the_order_asked_for(seats: list[Seat], other: Session) -> None:
    cheap = Seat.objects.order_by("-row")
    with other.holding(claim, cheap), transaction.atomic():
        assert [seat.row for seat in claim(cheap, 5)] == ["B", "A"]
        assert [seat.row for seat in claim(cheap, 5, by=["price", "-pk"])] == ["B", "A"]
        assert [seat.row for seat in claim(Seat.objects.all(), by="-price")] == ["A"]
        assert claim(Seat.objects.filter(row="C")) == []
        with pytest.raises(LockNotAvailable), transaction.atomic():
            lock_rows(cheap, nowait=True)


# Races


def first_empty() -> Seat | None:
    return Seat.objects.filter(guest="").order_by("pk").first()


def next_empty() -> Seat | None:
    return next(iter(claim(Seat.objects.filter(guest=""))), None)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("choose", "verdict"), [(first_empty, "broken"), (next_empty, "holds")])
def test_two_workers_never_get_the_same_row(choose: Any, verdict: str) -> None:
    def work(_: object) -> None:
        with transaction.atomic():
            seat = choose()
            Seat.objects.filter(pk=seat.pk).update(guest="taken", price=F("price") + 1)

    race = explore(
        Scenario(
            set_up=lambda: [Seat.objects.create() for _ in range(2)],
            actors=[work, work],
            invariant=lambda seats: set(Seat.objects.values_list("guest", "price")) == {("taken", 11)},
        )
    )
    assert race.verdict == verdict, race.reason


def raise_all(_: object) -> None:
    Seat.objects.filter(price__gt=0).update(price=F("price") + 10)


def raise_in_order(_: object) -> None:
    Seat.objects.filter(price__gt=0).update_in_order(price=F("price") + 10)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("write", "verdict"), [(raise_all, "incomplete"), (raise_in_order, "holds")])
def test_updates_of_many_rows_cannot_deadlock_each_other(write: Any, verdict: str) -> None:
    race = explore(
        Scenario(
            set_up=lambda: [Seat.objects.create() for _ in range(2)], actors=[write, write], invariant=lambda _: True
        ),
        no_deadlock=True,
    )
    assert race.verdict == verdict, race.reason
