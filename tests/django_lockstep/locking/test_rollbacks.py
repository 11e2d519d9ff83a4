"""An instance that a rollback may have undone is not written until it was read again."""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test import TestCase

from django_lockstep.errors import StaleVersionError
from django_lockstep.lab.pytest_plugin import RaceFixture
from tests.django_lockstep.locking.looks import REFUSED, assert_refused, fresh, save_once, statements
from tests.django_lockstep.locking.test_versions import WRITES, make_counter, no_write_is_lost
from tests.support.sessions import Session, query
from tests.testapps.shop.models import BoxSeat, Seat, Ticket

savepoint = getattr(transaction, "savepoint_create", None) or transaction.savepoint  # Django 6.1, and before
pytestmark = pytest.mark.django_db(transaction=True)

# What goes on: no rollback came between the write and the next one.


def test_an_instance_is_written_again_and_again_in_a_transaction_that_goes_on(seat: Seat) -> None:
    with transaction.atomic():
        save_once(seat)
        save_once(seat, "Bob")
        with transaction.atomic():
            save_once(seat, "Cyd")
            with transaction.atomic(savepoint=False):
                assert seat.update_if_unchanged(row="B")
        sid = savepoint()
        save_once(seat, "Eve")
        transaction.savepoint_commit(sid)
        save_once(seat, "Fay")
    assert (seat.version, fresh(seat).version, fresh(seat).guest) == (7, 7, "Fay")


def test_an_instance_is_written_again_after_the_commit(seat: Seat) -> None:
    with transaction.atomic():
        save_once(seat)
    assert statements(lambda: save_once(seat, "Bob")) == ["UPDATE"]
    with transaction.atomic():
        save_once(seat, "Cyd")
        seat.delete()


def test_an_instance_is_written_again_after_the_rollback_of_a_savepoint_that_was_made_later() -> None:
    seat, other = Seat.objects.create(), Seat.objects.create()
    with transaction.atomic():
        save_once(seat)
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            save_once(other)
            _ = 1 / 0
        assert statements(lambda: save_once(seat, "Bob")) == ["UPDATE"]
        transaction.savepoint_rollback(savepoint())
        assert statements(lambda: save_once(seat, "Cyd")) == ["UPDATE"]
        assert_refused(other)
    assert fresh(seat).guest == "Cyd"
    assert statements(lambda: save_once(seat, "Dan")) == ["UPDATE"]


# What is refused.


def test_a_part_that_is_read_again_is_not_enough(seat: Seat) -> None:
    with transaction.atomic():
        save_once(seat)
        transaction.set_rollback(True)
    seat.refresh_from_db(fields=["guest", "row"])
    with pytest.raises(ValueError, match=REFUSED):
        seat.save()


def test_what_was_read_again_before_the_rollback_is_refused_after_it(seat: Seat) -> None:
    with transaction.atomic():
        assert seat.update_if_unchanged(row="B")
        seat.refresh_from_db()
        save_once(seat)
        seat.refresh_from_db()
        transaction.set_rollback(True)
    assert_refused(seat)


def test_a_rolled_back_insert_is_no_row() -> None:
    seat = Seat(guest="Ada")
    with transaction.atomic():
        seat.save()
        transaction.set_rollback(True)
    with pytest.raises(ValueError, match=REFUSED):
        seat.save()
    seat.pk = None
    seat.save()
    assert fresh(seat).version == 1


@pytest.mark.parametrize("is_saved", [True, False])
def test_a_save_that_fails_in_its_second_table_can_be_repeated(is_saved: bool) -> None:
    seat = BoxSeat.objects.create() if is_saved else BoxSeat()
    before = seat.version
    seat.guest, seat.champagne = "Ada", cast("bool", None)
    with pytest.raises(IntegrityError):
        seat.save()
    seat.champagne = True
    seat.save()
    assert (fresh(seat).guest, fresh(seat).version, seat.version) == ("Ada", before + 1, before + 1)


def test_a_save_that_fails_can_be_repeated(seat: Seat) -> None:
    with transaction.atomic():
        save_once(seat)
        seat.price = cast("int", None)
        with pytest.raises(IntegrityError), transaction.atomic():
            seat.save()
        seat.price = 1
        seat.save()
    assert (fresh(seat).price, fresh(seat).version, seat.version) == (1, 3, 3)


def test_a_commit_that_fails_is_a_rollback(seat: Seat) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        assert seat.update_if_unchanged(guest="Ada")
        Ticket.objects.create(seat_id=seat.pk + 1)
    assert_refused(seat)


def test_a_connection_that_is_lost_at_the_commit_is_a_doubt(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    def commit_and_lose_the_answer() -> None:
        connection.connection.commit()
        raise DatabaseError("the connection was lost")

    with monkeypatch.context() as patch, pytest.raises(DatabaseError), transaction.atomic():
        assert seat.update_if_unchanged(guest="Ada")
        patch.setattr(connection, "_commit", commit_and_lose_the_answer)
    assert fresh(seat).guest == "Ada"
    assert_refused(seat)


# In every interleaving with another writer.


def write_after_a_savepoint(pk: int) -> None:
    """Write, undo it by a savepoint made by hand, and write again, with a ticket for a write that passes."""
    seat = Seat.objects.get(pk=pk)
    with transaction.atomic():
        sid = savepoint()
        seat.price += 1
        seat.save()
        transaction.savepoint_rollback(sid)
        with suppress(ValueError, StaleVersionError):
            seat.save(force_write=True)
            Ticket.objects.create(seat_id=pk)


def write_after_a_rollback(pk: int) -> None:
    """Write, undo it with the transaction, and write again."""
    seat = Seat.objects.get(pk=pk)
    seat.price += 1
    with suppress(ZeroDivisionError, StaleVersionError), transaction.atomic():
        seat.save()
        _ = 1 / 0
    with suppress(ValueError, StaleVersionError), transaction.atomic():
        seat.save(force_write=True)
        Ticket.objects.create(seat_id=pk)


@pytest.mark.parametrize("undo", [write_after_a_savepoint, write_after_a_rollback])
def test_no_interleaving_loses_an_update(race: RaceFixture, undo: Callable[[int], None]) -> None:
    race(undo, WRITES["update_if_unchanged"], set_up=make_counter, invariant=no_write_is_lost)


# Savepoints and transactions by hand.


def test_a_savepoint_in_raw_sql_is_noticed_too(seat: Seat) -> None:
    with transaction.atomic():
        query("SAVEPOINT mine")
        save_once(seat)
        query("rollback to mine")
        assert_refused(seat)


def test_a_wrapper_of_the_project_is_left_in_its_place() -> None:
    connection.execute_wrappers.clear()
    seen: list[str] = []

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    seat = Seat.objects.create()
    with connection.execute_wrapper(look), transaction.atomic():
        save_once(seat)
    assert look not in connection.execute_wrappers
    count = len(seen)
    seat.refresh_from_db()
    assert len(seen) == count


def test_atomic_inside_of_a_savepoint_by_hand_goes_with_it(seat: Seat) -> None:
    with transaction.atomic():
        sid = savepoint()
        with transaction.atomic():
            save_once(seat)
        transaction.savepoint_rollback(sid)
        assert_refused(seat)


@pytest.fixture
def by_hand() -> Iterator[None]:
    """Switch autocommit off, and back on."""
    transaction.set_autocommit(False)
    try:
        yield
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


@pytest.mark.parametrize("savepoint", [True, False])
def test_without_autocommit_atomic_and_its_end_are_told_apart(by_hand: None, savepoint: bool) -> None:
    seat = Seat.objects.create()
    transaction.commit()
    with transaction.atomic(savepoint=savepoint):
        save_once(seat)
    transaction.commit()
    with transaction.atomic(savepoint=savepoint):
        save_once(seat, "Bob")
    transaction.rollback()
    assert_refused(seat)


def test_without_autocommit_a_commit_stays_one_when_autocommit_is_on_again(seat: Seat) -> None:
    transaction.set_autocommit(False)
    save_once(seat)
    transaction.commit()
    transaction.set_autocommit(True)
    save_once(seat, "Bob")
    assert fresh(seat).guest == "Bob"


# Callbacks: Django calls them after the commit, ours among them.


@pytest.mark.parametrize("before", [True, False])
def test_a_callback_before_or_after_ours_may_save(seat: Seat, before: bool) -> None:
    with transaction.atomic():
        if before:
            transaction.on_commit(lambda: save_once(seat, "Bob"))
        save_once(seat)
        if not before:
            transaction.on_commit(lambda: save_once(seat, "Bob"))
    save_once(seat, "Cyd")
    assert (seat.version, fresh(seat).version, fresh(seat).guest) == (4, 4, "Cyd")


def test_a_callback_that_saves_in_a_transaction_that_fails_is_refused_afterwards(seat: Seat) -> None:
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
def test_a_callback_that_fails_before_ours_undoes_nothing(seat: Seat, robust: bool) -> None:
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
def test_callbacks_that_a_test_calls_early_are_no_commit(seat: Seat, execute: bool) -> None:
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


# Copies, threads


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_copy_shares_the_doubt(seat: Seat, duplicate: Callable[[Seat], Seat], is_committed: bool) -> None:
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


def test_of_a_pickled_one_nothing_is_known(seat: Seat) -> None:
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
def test_another_thread_is_told_the_same(seat: Seat, open_session: Callable[[], Session], is_committed: bool) -> None:
    def write_elsewhere() -> None:
        with transaction.atomic():
            save_once(seat)
            transaction.set_rollback(not is_committed)

    open_session().run(write_elsewhere)
    if is_committed:
        save_once(seat, "Bob")
    else:
        assert_refused(seat)
