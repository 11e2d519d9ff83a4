"""What is physically there does not differ from run to run either: it decides in which order rows are met."""

import pytest
from django.db import connection
from django.db.models import F

from django_lockstep.lab.explorer import Scenario, explore
from tests.django_lockstep.lab.explorer.programs import Action, race, three_seats
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)


def raise_all_prices(pks: list[int]) -> None:
    for _ in range(4):
        Seat.objects.update(price=F("price") + 1)


def test_a_scan_meets_the_rows_of_the_set_up_in_the_order_of_their_making() -> None:
    met = []

    def set_up() -> list[int]:
        pks = three_seats()
        with connection.cursor() as cursor:
            cursor.execute("SELECT id FROM shop_seat")
            met.append([pk for (pk,) in cursor.fetchall()] == pks)
        return pks

    for _ in range(2):
        explore(Scenario(set_up=set_up, actors=[raise_all_prices] * 2, invariant=bool), reduction="none")

    assert len(met) == 2 * (1 + 70)  # once to warm up
    assert all(met)


def test_vacuum_does_not_make_serializable_lock_whole_tables() -> None:
    kept: Action = ("savepoint", False, ("add", 2))
    scenario = race(("serializable", (kept,)), ("serializable", (kept, ("add", 1))))
    Seat.objects.create()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM shop_seat")

    result = explore(scenario, reduction="none")

    assert [outcome.errors for outcome in result.outcomes] == [{}, {}]
