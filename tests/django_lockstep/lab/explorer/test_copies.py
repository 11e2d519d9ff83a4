"""Tables that hold rows already: they are as they were afterwards, and an end is what differs from before."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from django_lockstep.lab.explorer import Scenario, explore
from django_lockstep.lab.explorer.tables.saved_tables import LARGE
from tests.testapps.shop.models import PlainSeat, Seat

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=[LARGE - 1, LARGE, 3 * LARGE], ids=["small", "as large as that", "large"])
def rows(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    Seat.objects.bulk_create(Seat(row=str(number), price=number) for number in range(request.param))
    return held()


def held() -> list[dict[str, Any]]:
    rows: Any = Seat.objects.order_by("pk").values()
    return list(rows)


def first() -> int:
    return Seat.objects.order_by("pk")[0].pk


def raise_price(pk: int) -> None:
    Seat.objects.filter(pk=pk).update(price=F("price") + 1)


def replace(pk: int) -> None:
    Seat.objects.filter(pk=pk).delete()
    Seat.objects.create(row="new", price=5)


def truncate(pk: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE shop_seat CASCADE")


def change_the_key(pk: int) -> None:
    Seat.objects.filter(pk=pk).update(id=pk + 100_000)


@pytest.mark.parametrize("actor", [raise_price, replace, truncate, change_the_key])
def test_every_row_is_put_back(rows: list[dict[str, Any]], actor: Callable[[int], None]) -> None:
    found = explore(Scenario(set_up=first, actors=[actor, raise_price], invariant=lambda pk: True))

    assert found.verdict == "holds", found.reason
    assert held() == rows


def test_set_up_finds_the_same_rows_before_every_schedule(rows: list[dict[str, Any]]) -> None:
    seen = []

    def set_up() -> int:
        seen.append(held())
        return first()

    explore(Scenario(set_up=set_up, actors=[replace, raise_price], invariant=lambda pk: True), reduction="none")

    assert len(seen) > 2
    assert all(each == rows for each in seen)


def test_an_end_is_the_rows_that_differ(rows: list[dict[str, Any]]) -> None:
    found = explore(Scenario(set_up=first, actors=[raise_price, raise_price]))

    state: Any = found.outcomes[0].state
    (now,), (before,) = state["shop_seat"], state["shop_seat, removed"]
    assert (before["row"], before["price"], now["price"]) == ("0", "0.00", "2.00")


def test_what_is_written_as_it_was_is_no_difference() -> None:
    PlainSeat.objects.bulk_create(PlainSeat() for _ in range(LARGE))

    def as_it_was(pk: int) -> None:
        PlainSeat.objects.filter(pk=pk).update(id=F("id"))

    (outcome,) = explore(
        Scenario(set_up=lambda: PlainSeat.objects.order_by("pk")[0].pk, actors=[as_it_was, as_it_was])
    ).outcomes

    assert outcome.state == {}
