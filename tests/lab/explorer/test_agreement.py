"""The reduced search has to find the same outcomes as the full one, on programs that nobody chose."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.lab.explorer import Exploration, Scenario, explore
from accounts.locking.transactions import transaction as isolated
from tests.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)

# What an actor may do; each reads into, or writes from, a register of its own.
ACTIONS = ("read", "read_all", "write", "add", "lock", "lock_nowait", "lock_share", "delete", "insert")
LEVELS: tuple[Any, ...] = (None, "read committed", "repeatable read", "serializable")

Action = tuple[str, int]
Program = tuple[Any, tuple[Action, ...]]

programs = st.tuples(
    st.sampled_from(LEVELS),
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2)), min_size=1, max_size=3).map(tuple),
)


def perform(action: str, pk: int, register: int) -> int:
    """Do one thing to one seat and return what the register holds then."""
    seats = Seat.objects.filter(pk=pk)
    if action == "read":
        return sum(int(price) for price in seats.values_list("price", flat=True))
    if action == "read_all":
        return sum(int(price) for price in Seat.objects.values_list("price", flat=True))
    if action == "write":
        seats.update(price=register + 1)
    elif action == "add":
        seats.update(price=F("price") + 2)
    elif action == "delete":
        connection.cursor().execute("DELETE FROM shop_seat WHERE id = %s", [pk])
    elif action == "insert":
        Seat.objects.create(price=register + 5)
    elif action == "lock_share":
        connection.cursor().execute("SELECT price FROM shop_seat WHERE id = %s FOR SHARE", [pk])
    else:
        return sum(int(s.price) for s in seats.select_for_update(no_key=True, nowait=action == "lock_nowait"))
    return register


def actor(program: Program) -> Callable[[Any], int]:
    level, actions = program

    def run(pks: list[int]) -> int:
        register = 0
        block = transaction.atomic() if level is None else isolated(isolation_level=level)
        with block:
            for action, index in actions:
                register = perform(action, pks[index], register)
        return register

    return run


def three_seats() -> list[int]:
    return [Seat.objects.create(price=10 * (index + 1)).pk for index in range(3)]


def prices(pks: list[int]) -> list[tuple[int, str]]:
    return [(pk, str(price)) for pk, price in Seat.objects.order_by("pk").values_list("pk", "price")]


def ends(exploration: Exploration) -> set[tuple[Any, ...]]:
    return {(tuple(o.errors.items()), tuple(o.results.items()), o.state) for o in exploration.outcomes}


@settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(one=programs, other=programs)
def test_reduced_and_full_search_find_the_same_outcomes(one: Program, other: Program) -> None:
    scenario = Scenario(set_up=three_seats, actors=[actor(one), actor(other)], invariant=bool, observe=prices)

    full, reduced = explore(scenario, reduction="none"), explore(scenario)

    assert full.verdict == reduced.verdict == "holds", full.reason
    assert ends(reduced) == ends(full)
    assert reduced.schedules <= full.schedules
