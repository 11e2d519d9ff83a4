"""The asynchronous sisters lock in the transaction of the code around them, and nothing outside of one."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext

from django_lockstep.lab.explorer import Scenario, explore
from django_lockstep.locking import (
    RetriesExhausted,
    StaleVersionError,
    aclaim,
    alock_row,
    alock_rows,
    aupdate_in_order,
    averify_unchanged,
    retry_on_conflict,
)
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)


def transactional(function: Callable[[list[int]], Awaitable[object]]) -> Callable[[list[int]], object]:
    """Return sync code that awaits the function in a transaction, again after a conflict."""

    @retry_on_conflict
    @transaction.atomic
    def call(pks: list[int]) -> object:
        return async_to_sync(function)(pks)

    return call


def two_seats() -> list[int]:
    return [Seat.objects.create(price=0).pk for _ in range(2)]


async def raise_price(seat: Seat) -> None:
    await Seat.objects.filter(pk=seat.pk).aupdate(price=seat.price + 1)


async def reads(pks: list[int]) -> None:
    await raise_price(await Seat.objects.aget(pk=pks[0]))


async def locks(pks: list[int]) -> None:
    await raise_price(await alock_row(Seat, pks[0]))


async def reads_two(pks: list[int]) -> None:
    for seat in [seat async for seat in Seat.objects.order_by("-pk")]:
        await raise_price(seat)


async def locks_two(pks: list[int]) -> None:
    for seat in await alock_rows(Seat, reversed(pks)):
        await raise_price(seat)


@pytest.mark.parametrize(
    ("actor", "verdict"), [(reads, "broken"), (locks, "holds"), (reads_two, "broken"), (locks_two, "holds")]
)
def test_two_that_read_and_write(actor: Any, verdict: str) -> None:
    def both_count(pks: list[int]) -> None:
        assert Seat.objects.get(pk=pks[0]).price == 2

    scenario = Scenario(set_up=two_seats, actors=[transactional(actor)] * 2, invariant=both_count)
    assert explore(scenario).verdict == verdict


async def takes_first(pks: list[int]) -> None:
    seat = await Seat.objects.filter(guest="").order_by("pk").afirst()
    assert seat is not None
    await Seat.objects.filter(pk=seat.pk).aupdate(guest="Eve")


async def claims(pks: list[int]) -> None:
    (seat,) = await aclaim(Seat.objects.filter(guest=""))
    await Seat.objects.filter(pk=seat.pk).aupdate(guest="Eve")


@pytest.mark.parametrize(("actor", "verdict"), [(takes_first, "broken"), (claims, "holds")])
def test_two_that_take_the_next(actor: Any, verdict: str) -> None:
    def both_are_taken(pks: list[int]) -> None:
        assert not Seat.objects.filter(guest="").exists()

    scenario = Scenario(set_up=two_seats, actors=[transactional(actor)] * 2, invariant=both_are_taken)
    assert explore(scenario).verdict == verdict


def leaves(number: int, *, verifies: bool) -> Callable[[list[int]], Awaitable[None]]:
    """Return code that leaves its seat if the other one is taken: one of the two has to stay."""

    async def leave(pks: list[int]) -> None:
        own, other = await Seat.objects.aget(pk=pks[number]), await Seat.objects.aget(pk=pks[1 - number])
        if other.guest:
            own.guest = ""
            await own.asave()
        if verifies:
            await averify_unchanged(other)

    return leave


@pytest.mark.parametrize(("verifies", "verdict"), [(False, "broken"), (True, "holds")])
def test_two_that_each_read_what_the_other_writes(verifies: bool, verdict: str) -> None:
    def two_taken() -> list[int]:
        return [Seat.objects.create(guest=name).pk for name in ("Ada", "Bob")]

    def one_stays(pks: list[int]) -> None:
        assert Seat.objects.exclude(guest="").exists()

    actors = [transactional(leaves(number, verifies=verifies)) for number in range(2)]
    assert explore(Scenario(set_up=two_taken, actors=actors, invariant=one_stays)).verdict == verdict


def test_an_update_in_order_has_a_transaction_of_its_own() -> None:
    two_seats()
    assert async_to_sync(aupdate_in_order)(Seat.objects.all(), price=3) == 2
    assert Seat.objects.filter(price=3).count() == 2


def test_outside_a_transaction_nothing_is_sent(seat: Seat) -> None:
    async def each() -> None:
        for call in (
            alock_row(Seat, seat.pk),
            alock_rows(Seat, [seat.pk]),
            aclaim(Seat.objects.all()),
            averify_unchanged(seat),
        ):
            with pytest.raises(TransactionManagementError, match="needs a transaction on database 'default'"):
                await call

    with CaptureQueriesContext(connection) as captured:
        async_to_sync(each)()
    assert not captured.captured_queries


def test_a_part_of_a_coroutine_is_repeated(seat: Seat) -> None:
    stale = Seat.objects.get(pk=seat.pk)
    seat.guest = stale.guest = "Eve"
    seat.save()
    attempts: list[str] = []

    async def book() -> str:
        async for attempt in retry_on_conflict(attempts=2):
            with attempt:
                attempts.append("begun")
                await stale.asave() if len(attempts) == 1 else await Seat.objects.aget(pk=seat.pk)
                return "booked"
        raise AssertionError("an attempt either returns or raises")

    assert async_to_sync(book)() == "booked"
    assert len(attempts) == 2
    with transaction.atomic(), pytest.raises(TransactionManagementError, match="A retry runs whole transactions"):
        async_to_sync(book)()


def test_a_part_of_a_coroutine_gives_up() -> None:
    async def book() -> None:
        async for attempt in retry_on_conflict(attempts=2):
            with attempt:
                raise StaleVersionError

    with pytest.raises(RetriesExhausted) as caught:
        async_to_sync(book)()
    assert isinstance(caught.value.__cause__, StaleVersionError)
