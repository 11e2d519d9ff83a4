"""Rows are locked inside a transaction only, in primary-key order, no stronger and no wider than asked."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest
from django.db import NotSupportedError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from django_lockstep.lab.explorer import Scenario, explore
from django_lockstep.locking import LockNotAvailable, StaleVersionError, lock_row, lock_rows
from tests.django_lockstep.locking.looks import fresh
from tests.support.sessions import Session, is_as_it_was, query
from tests.testapps.shop.models import BoxSeat, Seat, Stage, StampedSeat, Ticket


def held(session: Session, *seats: Seat) -> AbstractContextManager[Any]:
    """Lock seats in a transaction of the session for the length of a block."""
    return session.holding(lock_rows, Seat, [seat.pk for seat in seats])


def sql_of(function: Callable[[], object]) -> list[str]:
    with transaction.atomic(), CaptureQueriesContext(connection) as captured:
        function()
    return [entry["sql"] for entry in captured]


@pytest.mark.parametrize("lock", [lambda seat: lock_row(Seat, seat.pk), lock_row], ids=["by key", "an instance"])
def test_outside_a_transaction_nothing_is_sent(seats: list[Seat], lock: Callable[[Seat], object]) -> None:
    with CaptureQueriesContext(connection) as captured, pytest.raises(TransactionManagementError) as caught:
        lock(seats[0])
    assert not captured.captured_queries
    assert "shop.Seat" in str(caught.value)
    assert "atomic(using='default')" in str(caught.value)


def test_rows_come_locked_in_primary_key_order_each_once(seats: list[Seat]) -> None:
    a, b, c = (seat.pk for seat in seats)
    with transaction.atomic():
        assert [seat.pk for seat in lock_rows(Seat, [c, a, b, a])] == [a, b, c]
    (sql,) = sql_of(lambda: lock_rows(Seat, [c, a]))
    assert sql.endswith('ORDER BY "shop_seat"."id" ASC FOR NO KEY UPDATE OF "shop_seat"')


def test_a_second_locker_waits_for_the_first(seats: list[Seat], other: Session) -> None:
    def lock_and_read() -> str:
        with transaction.atomic():
            return lock_row(Seat, seats[0].pk).guest

    with transaction.atomic():
        lock_row(Seat, seats[0].pk)
        waiting = other.start(lock_and_read)
        other.wait_until_blocked()
        Seat.objects.filter(pk=seats[0].pk).update(guest="Ada")
    assert waiting.result() == "Ada"


def test_nowait_fails_at_once_and_says_which_row(seats: list[Seat], other: Session) -> None:
    with held(other, seats[1]):
        with pytest.raises(LockNotAvailable) as caught, transaction.atomic():
            lock_rows(Seat, [seat.pk for seat in seats], nowait=True)
        assert (caught.value.model, caught.value.sqlstate) == (Seat, "55P03")
        assert caught.value.pk == [seat.pk for seat in seats]


def test_skip_locked_leaves_out_what_somebody_holds(seats: list[Seat], other: Session) -> None:
    a, b, c = (seat.pk for seat in seats)
    with held(other, seats[1]), transaction.atomic():
        assert [seat.pk for seat in lock_rows(Seat, [a, b, c], skip_locked=True)] == [a, c]


@pytest.mark.parametrize("timeout", [0.02, timedelta(milliseconds=20)])
def test_timeout_bounds_the_wait(seats: list[Seat], other: Session, timeout: float | timedelta) -> None:
    with held(other, seats[0]), pytest.raises(LockNotAvailable), transaction.atomic():
        lock_row(Seat, seats[0].pk, timeout=timeout)


def test_session_and_transaction_keep_their_own_timeout(seats: list[Seat]) -> None:
    query("SET lock_timeout = '7s'")
    with transaction.atomic():
        lock_row(Seat, seats[0].pk, timeout=3)
        assert query("SHOW lock_timeout") == "7s"
        query("SET LOCAL lock_timeout = '5s'")
        lock_row(Seat, seats[0].pk, timeout=timedelta(seconds=3))
        assert query("SHOW lock_timeout") == "5s"
    assert query("SHOW lock_timeout") == "7s"
    query("RESET lock_timeout")


def test_a_failed_lock_in_a_savepoint_leaves_the_timeout_alone(seats: list[Seat], other: Session) -> None:
    with held(other, seats[0]), transaction.atomic():
        with pytest.raises(LockNotAvailable), transaction.atomic():
            lock_row(Seat, seats[0].pk, timeout=0.001)
        assert is_as_it_was("lock_timeout")


@pytest.mark.parametrize("timeout", [0, -1, timedelta(0), float("nan"), float("inf"), True, "3", object()])
def test_timeouts_that_are_no_duration_are_refused(seats: list[Seat], timeout: Any) -> None:
    refused = pytest.raises((ValueError, TypeError), match="greater than zero|timedelta or a number of seconds")
    with transaction.atomic(), refused:
        lock_row(Seat, seats[0].pk, timeout=timeout)


@pytest.mark.parametrize("option", ["nowait", "skip_locked"])
def test_a_timeout_contradicts_not_waiting(seats: list[Seat], option: str) -> None:
    with transaction.atomic(), pytest.raises(ValueError, match="timeout cannot be combined"):
        lock_rows(Seat, [seats[0].pk], timeout=1, **{option: True})  # type: ignore[arg-type]


def test_neighbours_that_are_read_along_are_not_locked(seats: list[Seat], other: Session) -> None:
    ticket = Ticket.objects.create(seat=seats[0])
    with held(other, seats[0]), transaction.atomic():
        assert lock_row(Ticket.objects.select_related("seat"), ticket.pk, nowait=True).seat == seats[0]
        with pytest.raises(NotSupportedError, match="nullable side of an outer join"), transaction.atomic():
            lock_row(Ticket.objects.select_related("seat"), ticket.pk, of=("self", "seat"))


def test_a_row_in_two_tables_is_locked_in_both(db: None) -> None:
    box = BoxSeat.objects.create()
    (sql,) = sql_of(lambda: lock_row(BoxSeat, box.pk))
    assert sql.endswith('FOR NO KEY UPDATE OF "shop_seat", "shop_boxseat"')


def test_keys_without_a_row_are_named(seats: list[Seat]) -> None:
    with transaction.atomic(), pytest.raises(Seat.DoesNotExist, match="shop.Seat 0, 999999 does not exist"):
        lock_rows(Seat, [seats[0].pk, 999999, 0])


def test_no_keys_lock_nothing(db: None) -> None:
    assert sql_of(lambda: lock_rows(Seat, [])) == []


def test_a_string_is_no_collection_of_keys(db: None) -> None:
    with transaction.atomic(), pytest.raises(TypeError, match="not the string '12'"):
        lock_rows(Seat, "12")


def test_a_query_set_narrows_what_is_locked(seats: list[Seat]) -> None:
    with transaction.atomic(), pytest.raises(Seat.DoesNotExist):
        lock_row(Seat.objects.filter(guest="nobody"), seats[0].pk)


# An instance


@pytest.mark.parametrize("model", [Seat, BoxSeat, StampedSeat])
def test_an_instance_is_locked_and_read_in_place(transactional_db: None, model: Any) -> None:
    seat = model.objects.create()
    assert fresh(seat).update_if_unchanged(guest="Ada")
    with transaction.atomic():
        assert lock_row(seat) is seat
        assert (seat.guest, seat.version) == ("Ada", 2)
        seat.guest = "Bob"
        seat.save()
    assert (fresh(seat).guest, fresh(seat).version) == ("Bob", 3)


def test_it_is_one_statement_that_waits(seats: list[Seat], other: Session) -> None:
    (sql,) = sql_of(lambda: lock_row(seats[0]))
    assert sql.endswith('FOR NO KEY UPDATE OF "shop_seat"')
    with held(other, seats[0]), pytest.raises(LockNotAvailable), transaction.atomic():
        lock_row(seats[0], nowait=True)


def test_an_instance_with_unsaved_changes_is_refused_before_any_sql(seats: list[Seat]) -> None:
    seats[0].guest = "Ada"
    seats[0].wishes.append("aisle")
    with transaction.atomic(), CaptureQueriesContext(connection) as captured:
        with pytest.raises(ValueError, match="has unsaved changes of guest, wishes"):
            lock_row(seats[0])
        assert not captured.captured_queries
    assert (seats[0].guest, seats[0].wishes) == ("Ada", ["aisle"])


def test_an_instance_whose_row_is_gone_is_named(seats: list[Seat]) -> None:
    fresh(seats[0]).delete()
    with pytest.raises(Seat.DoesNotExist, match="does not exist"), transaction.atomic():
        lock_row(seats[0])


def test_an_instance_that_cannot_tell_its_changes_is_refused(transactional_db: None) -> None:
    with pytest.raises(TypeError, match="is not a VersionedModel"), transaction.atomic():
        lock_row(Ticket.objects.create())
    with pytest.raises(ValueError, match="was never saved"), transaction.atomic():
        lock_row(Seat())


def test_an_instance_needs_no_key_and_a_model_one(seats: list[Seat]) -> None:
    with pytest.raises(TypeError, match="not both"), transaction.atomic():
        lock_row(seats[0], seats[1].pk)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="needs the primary key"), transaction.atomic():
        lock_row(Seat)  # type: ignore[call-overload]


def test_what_the_lock_read_is_undone_with_the_write_before_it(seats: list[Seat]) -> None:
    with transaction.atomic():
        assert seats[0].update_if_unchanged(row="Z")
        Seat.objects.filter(pk=seats[0].pk).update(guest="Ada")
        lock_row(seats[0])
        assert (seats[0].guest, seats[0].version) == ("Ada", 3)
        transaction.set_rollback(True)
    with pytest.raises(ValueError, match="refresh_from_db"):
        seats[0].save()


# Rows in several tables: whoever writes or locks one does so in one order, so that no two of them deadlock


VALUES: dict[type[Any], dict[str, Any]] = {
    BoxSeat: {"guest": "Ada", "champagne": True},
    Stage: {"name": "Globe", "guest": "Ada"},
}
"""In each of the two tables a field."""


def save(row: Any) -> None:
    for name, value in VALUES[type(row)].items():
        setattr(row, name, value)
    row.save()


def update_if_unchanged(row: Any) -> None:
    row.update_if_unchanged(**VALUES[type(row)])


def update_many_if_unchanged(row: Any) -> None:
    type(row).objects.update_many_if_unchanged([(row.pk, row.version, VALUES[type(row)])])


def lock(row: Any) -> None:
    with transaction.atomic():
        lock_row(type(row), row.pk)


def delete(row: Any) -> None:
    row.delete()


WAYS = (save, update_if_unchanged, update_many_if_unchanged, lock, delete)
PAIRS = {f"{first.__name__}-{second.__name__}": (first, second) for first, second in combinations(WAYS, 2)}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("model", list(VALUES))
@pytest.mark.parametrize("ways", list(PAIRS.values()), ids=PAIRS)
def test_no_two_ways_deadlock(model: type[Any], ways: tuple[Callable[[Any], None], ...]) -> None:
    def actor(way: Callable[[Any], None]) -> Callable[[Any], None]:
        def act(pk: Any) -> None:
            row = model.objects.filter(pk=pk).first()
            if row is None:
                return
            try:
                way(row)
            except (StaleVersionError, model.DoesNotExist):
                return

        return act

    exploration = explore(
        Scenario(
            set_up=lambda: model.objects.create().pk,
            actors={way.__name__: actor(way) for way in ways},
            invariant=lambda pk: True,
        )
    )
    assert (exploration.verdict, exploration.deadlocks, exploration.errors) == ("holds", 0, {})
