"""Verdicts on code with caches, and on loops that poll."""

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.cache import cache
from django.db import connection
from django.db.models import F

from django_lockstep.lab.explorer import Scenario, explore
from tests.django_lockstep.lab.explorer import stories
from tests.testapps.shop.models import PlainSeat, Seat

pytestmark = pytest.mark.django_db(transaction=True)


def raised(pk: int) -> None:
    Seat.objects.filter(pk=pk).update(price=F("price") + 10)


def cached(pk: int) -> None:
    ContentType.objects.get_for_model(PlainSeat)
    cache.get_or_set("price", lambda: str(stories.price(pk)))
    raised(pk)


def test_caches_are_warm() -> None:
    cache.clear()
    ContentType.objects.clear_cache()

    assert explore(Scenario(set_up=stories.one_seat, actors=[cached] * 2)).verdict == "holds"


def test_a_cold_cache_is_reported_with_the_lines_and_what_to_do() -> None:
    cache.clear()

    result = explore(Scenario(set_up=stories.one_seat, actors=[cached] * 2), warm_up=False)

    assert result.verdict == "nondeterministic"
    assert "(at tests/django_lockstep/lab/explorer/" in result.reason
    assert "a cache that an earlier run filled" in result.reason


def poll(pk: int) -> None:
    while Seat.objects.get(pk=pk).guest != "done":
        pass


def finish(pk: int) -> None:
    Seat.objects.filter(pk=pk).update(guest="half")
    Seat.objects.filter(pk=pk).update(guest="done")


@pytest.mark.parametrize("actors", [[poll, finish], [finish, poll]])
def test_a_loop_that_polls_lets_others_go(actors: list[stories.Actor]) -> None:
    result = explore(Scenario(set_up=stories.one_seat, actors=actors, invariant=bool))

    assert result.verdict == "holds"
    assert "fair" in result.reason


def test_a_query_that_is_repeated_is_no_loop_that_polls() -> None:
    def look_around(pk: int) -> None:
        for _ in range(5):
            stories.price(pk)

    result = explore(Scenario(set_up=stories.one_seat, actors=[look_around, stories.computed], invariant=bool))

    assert (result.verdict, result.yields) == ("holds", 0)


def test_a_run_without_an_end_is_stuck() -> None:
    def for_ever(pk: int) -> None:
        while True:
            raised(pk)

    result = explore(Scenario(set_up=stories.one_seat, actors=[for_ever, finish], invariant=bool), max_steps=30)

    assert result.verdict == "stuck"
    assert "30 steps (max_steps)" in result.reason
    assert "test_loops.py:" in result.reason


def test_the_time_is_looked_at_inside_a_run() -> None:
    def slow(pk: int) -> None:
        with connection.cursor() as cursor:
            for _ in range(50):
                cursor.execute("UPDATE shop_seat SET price = price FROM pg_sleep(0.02)")

    result = explore(Scenario(set_up=stories.one_seat, actors=[slow] * 2, invariant=bool), timeout=0.2)

    assert (result.verdict, result.schedules) == ("incomplete", 0)
