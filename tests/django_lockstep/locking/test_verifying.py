"""Rows that a transaction only read are as they were read when it commits."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from django_lockstep.locking import (
    DeadlockDetected,
    SerializationFailure,
    StaleVersionError,
    isolated_transaction,
    verify_unchanged,
)
from tests.django_lockstep.locking.looks import every_kind, fresh, statements
from tests.support.sessions import Session
from tests.testapps.shop.models import Seat, Stage

pytestmark = pytest.mark.django_db


@every_kind
def test_what_is_unchanged_passes_and_what_changed_is_named(make: Any) -> None:
    seat = make()
    verify_unchanged(seat, fresh(seat))
    assert fresh(seat).update_if_unchanged(guest="Ada")
    with pytest.raises(StaleVersionError) as caught:
        verify_unchanged(seat)
    error = caught.value
    assert (error.model, error.pk, error.expected, error.found) == (type(seat), seat.pk, 1, 2)
    assert (error.target, error.action) == (seat, "verify")


@every_kind
def test_what_is_gone_is_named(make: Any) -> None:
    seat = make()
    fresh(seat).delete()
    with pytest.raises(type(seat).DoesNotExist, match="was deleted since it was read"):
        verify_unchanged(seat)


def test_what_this_transaction_wrote_itself_is_unchanged() -> None:
    seat = Seat.objects.create()
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
def test_it_needs_a_transaction() -> None:
    seat = Seat.objects.create()
    with pytest.raises(TransactionManagementError):
        verify_unchanged(seat)


def test_an_instance_without_its_version_is_refused() -> None:
    with pytest.raises(ValueError, match="was never saved"):
        verify_unchanged(Seat())


def test_nobody_changes_it_until_the_end(other: Session) -> None:
    seat = Seat.objects.create()
    with transaction.atomic():
        verify_unchanged(seat)
        late = other.start(fresh(seat).update_if_unchanged, guest="Ada")
        other.wait_until_blocked()
        assert fresh(seat).guest == ""
    assert late.result() is True


def test_it_waits_for_a_writer_and_is_told(open_session: Callable[[], Session]) -> None:
    seat = Seat.objects.create()
    session, reader = open_session(), fresh(seat)

    def verify() -> None:
        with transaction.atomic():
            verify_unchanged(reader)

    with transaction.atomic():
        assert seat.update_if_unchanged(guest="Ada")
        late = session.start(verify)
        session.wait_until_blocked()
    assert isinstance(late.exception(), StaleVersionError)


def test_readers_do_not_wait_for_each_other(other: Session) -> None:
    seat = Seat.objects.create()

    def verify() -> str:
        with transaction.atomic():
            verify_unchanged(fresh(seat))
        return "verified"

    with transaction.atomic():
        verify_unchanged(seat)
        assert other.run(verify) == "verified"


def test_above_read_committed_a_change_is_a_serialization_failure(other: Session) -> None:
    seat = Seat.objects.create()
    rival = fresh(seat)

    def verify_late() -> None:
        with isolated_transaction(isolation_level="repeatable read"):
            mine = fresh(seat)
            other.run(rival.update_if_unchanged, guest="Bob")
            verify_unchanged(mine)

    with pytest.raises(SerializationFailure):
        verify_late()


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
