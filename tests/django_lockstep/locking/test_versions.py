"""A versioned row is written only while it has the version that was read."""

from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from itertools import combinations_with_replacement
from typing import Any

import pytest
from django.core.exceptions import FieldDoesNotExist
from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from django_lockstep.lab.pytest_plugin import RaceFixture
from django_lockstep.locking import DeadlockDetected, StaleVersionError, verify_unchanged
from tests.django_lockstep.locking.looks import every_kind, fresh, statements
from tests.support.sessions import Session, query
from tests.testapps.shop.models import BoxSeat, Seat, Stage, StampedSeat, Ticket

pytestmark = pytest.mark.django_db


def test_versions_start_at_one_in_bulk(db: None) -> None:
    Seat.objects.bulk_create([Seat(), Seat()])
    assert list(Seat.objects.values_list("version", flat=True)) == [1, 1]


def test_an_unchanged_row_is_written_and_the_instance_follows(seat: Seat) -> None:
    assert seat.update_if_unchanged(guest="Ada", price="12.5") is True
    assert (seat.guest, seat.price, seat.version) == ("Ada", Decimal("12.50"), 2)
    assert (fresh(seat).guest, fresh(seat).price, fresh(seat).version) == ("Ada", Decimal("12.50"), 2)


def test_it_is_one_statement(seat: Seat) -> None:
    with CaptureQueriesContext(connection) as captured:
        seat.update_if_unchanged(guest="Ada")
    (sql,) = [entry["sql"] for entry in captured]
    assert sql.startswith("UPDATE")
    assert f'"shop_seat"."id" = {seat.pk} AND "shop_seat"."version" = 1' in sql


def test_a_changed_row_is_left_alone_and_so_is_the_instance(seat: Seat) -> None:
    assert fresh(seat).update_if_unchanged(guest="Bob")
    before = dict(vars(seat))
    assert seat.update_if_unchanged(guest="Ada", price=F("price") + 1) is False
    assert vars(seat) == before
    assert (fresh(seat).guest, fresh(seat).version) == ("Bob", 2)


def test_a_deleted_row_stays_deleted(seat: Seat) -> None:
    fresh(seat).delete()
    with transaction.atomic():
        with pytest.raises(Seat.DoesNotExist, match="was deleted since it was read"):
            seat.update_if_unchanged(guest="Ada")
        assert not Seat.objects.exists()


def test_expressions_are_computed_by_the_database_and_read_back(seat: Seat) -> None:
    assert seat.update_if_unchanged(price=F("price") * 2)
    assert seat.price == Decimal("20.00")
    stamped = StampedSeat.objects.create()
    assert stamped.update_if_unchanged(booked_at=Now())
    assert stamped.booked_at == StampedSeat.objects.get().booked_at is not None


def test_fields_that_follow_every_save_are_written_too(db: None) -> None:
    seat = StampedSeat.objects.create()
    before = seat.touched_at
    assert seat.update_if_unchanged(guest="Ada")
    assert seat.touched_at == StampedSeat.objects.get().touched_at > before


def test_the_guard_covers_both_tables_of_an_inherited_row(db: None) -> None:
    box = BoxSeat.objects.create()
    rival = fresh(box)
    with CaptureQueriesContext(connection) as captured:
        assert box.update_if_unchanged(champagne=True, guest="Ada")
    updates = [entry["sql"] for entry in captured if entry["sql"].startswith("UPDATE")]
    assert ['"version" = 1' in sql.partition("WHERE")[2] for sql in updates] == [True, False]
    assert not rival.update_if_unchanged(champagne=False)
    current = BoxSeat.objects.get(pk=box.pk)
    assert (current.champagne, current.guest, current.version, box.version) == (True, "Ada", 2, 2)


def test_an_unsaved_instance_has_no_version_to_compare(db: None) -> None:
    with pytest.raises(ValueError, match="was never saved"):
        Seat().update_if_unchanged(guest="Ada")


@pytest.mark.parametrize("read", [Seat.objects.defer("version"), Seat.objects.only("guest")])
def test_an_instance_without_its_version_is_refused_before_any_sql(seat: Seat, read: Any) -> None:
    partial = read.get(pk=seat.pk)
    for write in (partial.save, lambda: partial.update_if_unchanged(guest="Ada")):
        with CaptureQueriesContext(connection) as sent, pytest.raises(ValueError, match="read without its 'version'"):
            write()
        assert not sent.captured_queries


@pytest.mark.parametrize("name", ["version", "id", "pk"])
def test_what_identifies_the_row_read_cannot_be_written(seat: Seat, name: str) -> None:
    with pytest.raises((ValueError, FieldDoesNotExist), match=name):
        seat.update_if_unchanged(**{name: 5})
    assert fresh(seat).version == 1


@pytest.mark.parametrize("name", ["colour", "ticket", "ticket_set"])
def test_unknown_fields_are_refused(seat: Seat, name: str) -> None:
    with pytest.raises(FieldDoesNotExist, match=name):
        seat.update_if_unchanged(**{name: "red"})


# No write is lost, whatever way each of two writers takes: each that passes leaves a ticket


@transaction.atomic
def count_by_update_if_unchanged(pk: int) -> None:
    seat = Seat.objects.get(pk=pk)
    if seat.update_if_unchanged(price=seat.price + 1):
        Ticket.objects.create(seat_id=pk)


def count_by_save(pk: int, update_fields: list[str] | None = None) -> None:
    with suppress(StaleVersionError), transaction.atomic():
        seat = Seat.objects.get(pk=pk)
        seat.price += 1
        seat.save(update_fields=update_fields)
        Ticket.objects.create(seat_id=pk)


@transaction.atomic
def count_by_sql(pk: int) -> None:
    """As another program would, which has never heard of versions."""
    query("UPDATE shop_seat SET price = price + 1 WHERE id = %s", pk)
    Ticket.objects.create(seat_id=pk)


WRITES: dict[str, Callable[[int], None]] = {
    "update_if_unchanged": count_by_update_if_unchanged,
    "save": count_by_save,
    "update_fields": lambda pk: count_by_save(pk, ["price"]),
    "sql": count_by_sql,
}


def make_counter() -> int:
    return Seat.objects.create(price=0).pk


def no_write_is_lost(pk: int) -> bool:
    seat = Seat.objects.get(pk=pk)
    return seat.price == seat.version - 1 == Ticket.objects.filter(seat_id=pk).count()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("names", list(combinations_with_replacement(WRITES, 2)), ids="+".join)
def test_no_interleaving_of_two_writers_loses_a_write(race: RaceFixture, names: tuple[str, str]) -> None:
    race(*(WRITES[name] for name in names), set_up=make_counter, invariant=no_write_is_lost)


# Rows that a transaction only read are as they were read when it commits


@every_kind
def test_what_is_unchanged_passes_and_what_changed_is_named(make: Any) -> None:
    seat = make()
    verify_unchanged(seat, fresh(seat))
    assert fresh(seat).update_if_unchanged(guest="Ada")
    with pytest.raises(StaleVersionError) as caught:
        verify_unchanged(seat)
    error = caught.value
    assert (error.model, error.pk, error.expected, error.actual) == (type(seat), seat.pk, 1, 2)
    assert (error.target, error.action) == (seat, "verify")


@every_kind
def test_what_is_gone_is_named(make: Any) -> None:
    seat = make()
    fresh(seat).delete()
    with pytest.raises(type(seat).DoesNotExist, match="was deleted since it was read"):
        verify_unchanged(seat)


def test_what_this_transaction_wrote_itself_is_unchanged(seat: Seat) -> None:
    assert seat.update_if_unchanged(guest="Ada")
    verify_unchanged(seat)


def test_it_is_one_statement_a_table_in_one_order() -> None:
    seats = [Seat.objects.create() for _ in range(3)]
    stage = Stage.objects.create()
    with CaptureQueriesContext(connection) as captured:
        verify_unchanged(stage, *reversed(seats))
    first, second = [entry["sql"] for entry in captured]
    assert first.endswith('ORDER BY "shop_seat"."id" ASC FOR SHARE')
    assert '"shop_stage"' in second
    assert statements(verify_unchanged) == []


@pytest.mark.django_db(transaction=True)
def test_it_needs_a_transaction(seat: Seat) -> None:
    with pytest.raises(TransactionManagementError):
        verify_unchanged(seat)


def test_an_instance_without_its_version_is_refused() -> None:
    with pytest.raises(ValueError, match="was never saved"):
        verify_unchanged(Seat())


def test_readers_do_not_wait_for_each_other(seat: Seat, other: Session) -> None:
    def verify() -> str:
        with transaction.atomic():
            verify_unchanged(fresh(seat))
        return "verified"

    with transaction.atomic():
        verify_unchanged(seat)
        assert other.run(verify) == "verified"


# Write skew: of two doctors on call, one may leave


def two_on_call() -> tuple[int, int]:
    return Seat.objects.create(guest="on call").pk, Seat.objects.create(guest="on call").pk


def leave(pks: tuple[int, int], *, mine: int, verified: bool) -> bool:
    try:
        with transaction.atomic():
            me, them = Seat.objects.get(pk=pks[mine]), Seat.objects.get(pk=pks[1 - mine])
            if them.guest != "on call":
                return False
            me.guest = ""
            me.save()
            if verified:
                verify_unchanged(them)
    except (StaleVersionError, DeadlockDetected):
        return False
    return True


def someone_stays(pks: tuple[int, int]) -> bool:
    return Seat.objects.filter(pk__in=pks, guest="on call").exists()


def actors(*, verified: bool) -> dict[str, Any]:
    def first(pks: tuple[int, int]) -> bool:
        return leave(pks, mine=0, verified=verified)

    def second(pks: tuple[int, int]) -> bool:
        return leave(pks, mine=1, verified=verified)

    return {"first": first, "second": second}


def one_leaves(pks: tuple[int, int], results: dict[str, bool], errors: dict[str, Exception]) -> None:
    assert someone_stays(pks)
    assert sorted(results.values()) == [False, True]
    assert not errors


@pytest.mark.django_db(transaction=True)
def test_no_interleaving_breaks_a_rule_over_two_rows(race: Any) -> None:
    race(actors(verified=True), set_up=two_on_call, invariant=one_leaves)


@pytest.mark.django_db(transaction=True)
def test_without_it_one_does(race: Any) -> None:
    with pytest.raises(pytest.fail.Exception, match="The race is broken"):
        race(actors(verified=False), set_up=two_on_call, invariant=someone_stays)
