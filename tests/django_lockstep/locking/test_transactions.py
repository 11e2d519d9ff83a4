"""A block runs at the isolation level it asks for, or not at all."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from django.db import InternalError, connection, transaction
from django.db.transaction import TransactionManagementError

from django_lockstep.editing import writing
from django_lockstep.leases import exclusive
from django_lockstep.locking import SerializationFailure, ignore_versions, isolated_transaction, retry_on_conflict
from django_lockstep.locking.conf import without_retry_waits
from tests.support.sessions import Session, query
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_the_block_runs_at_the_level(level: Any) -> None:
    with isolated_transaction(isolation_level=level):
        assert query("SHOW transaction_isolation") == level
    assert query("SHOW transaction_isolation") == "read committed"


def test_a_read_only_block_refuses_writes() -> None:
    with pytest.raises(InternalError, match="read-only transaction"), isolated_transaction(read_only=True):
        Seat.objects.create()
    Seat.objects.create()


def test_a_deferrable_block() -> None:
    with isolated_transaction(isolation_level="serializable", read_only=True, deferrable=True):
        assert query("SHOW transaction_deferrable") == "on"


def test_without_characteristics_it_is_atomic() -> None:
    with pytest.raises(ZeroDivisionError), isolated_transaction():
        Seat.objects.create()
        _ = 1 / 0
    assert not Seat.objects.exists()


def test_inside_an_open_transaction_it_does_not_pretend() -> None:
    with (
        transaction.atomic(),
        pytest.raises(TransactionManagementError, match="can no longer be chosen"),
        isolated_transaction(isolation_level="serializable"),
    ):
        pass


def test_an_unknown_level_is_refused() -> None:
    unknown: Any = "snapshot"
    with pytest.raises(ValueError, match="'snapshot'"), isolated_transaction(isolation_level=unknown):
        pass


def test_with_retries_it_is_the_whole_recipe_for_serializable(seat: Seat, other: Session) -> None:
    runs: list[str] = []

    @retry_on_conflict(attempts=3)
    def rename() -> None:
        with isolated_transaction(isolation_level="serializable"):
            guest = Seat.objects.get(pk=seat.pk).guest
            if not runs:
                other.run(Seat.objects.filter(pk=seat.pk).update, guest="Bob")
            runs.append(guest)
            Seat.objects.filter(pk=seat.pk).update(guest=guest + "!")

    rename()
    seat.refresh_from_db()
    assert (runs, seat.guest) == (["", "Bob"], "Bob!")


def test_write_skew_met_at_commit_is_translated_too(other: Session) -> None:
    a, b = Seat.objects.create(guest="Ada"), Seat.objects.create(guest="Ada")

    def leave_if_another_stays(seat: Seat) -> None:
        if Seat.objects.filter(guest="Ada").count() > 1:
            Seat.objects.filter(pk=seat.pk).update(guest="")

    def in_the_middle() -> None:
        with isolated_transaction(isolation_level="serializable"):
            leave_if_another_stays(b)

    with pytest.raises(SerializationFailure), isolated_transaction(isolation_level="serializable"):
        leave_if_another_stays(a)
        other.run(in_the_middle)
    assert Seat.objects.filter(guest="Ada").count() == 1


# The library's context managers decorate functions whose body runs inside of them, and refuse the others


BLOCKS: dict[str, Callable[[], Any]] = {
    "isolated_transaction": isolated_transaction,
    "ignore_versions": lambda: ignore_versions(Seat),
    "writing": lambda: writing(1),
    "without_retry_waits": without_retry_waits,
}


def rows() -> Iterator[int]:
    yield 1


async def later() -> AsyncIterator[int]:
    yield 1


async def coroutine() -> int:
    return 1


@pytest.mark.parametrize("name", BLOCKS)
def test_what_runs_after_the_call_is_refused_when_it_is_decorated(name: str) -> None:
    for function, kind in ((rows, "generator"), (later, "generator"), (coroutine, "coroutine")):
        with pytest.raises(TypeError, match=rf"@{name} cannot decorate the {kind} function {function.__name__}\(\)"):
            BLOCKS[name]()(function)


@pytest.mark.parametrize(
    "decorate",
    [retry_on_conflict, retry_on_conflict(attempts=2), exclusive("nightly", ttl=60)],
    ids=["retry_on_conflict", "retry_on_conflict with options", "exclusive"],
)
def test_a_generator_is_refused_where_a_coroutine_is_not(decorate: Callable[[Any], Any]) -> None:
    for function in (rows, later):
        with pytest.raises(TypeError, match=rf"cannot decorate the generator function {function.__name__}\(\)"):
            decorate(function)


@pytest.mark.django_db(transaction=True)
def test_a_function_has_a_block_of_its_own_for_each_call() -> None:
    @isolated_transaction(isolation_level="serializable")
    def level(*, deeper: bool) -> list[str]:
        return [query("SHOW transaction_isolation"), *([connection.in_atomic_block] if deeper else [])]

    assert level(deeper=False) == ["serializable"]
    assert level(deeper=True) == ["serializable", True]
    assert not connection.in_atomic_block
