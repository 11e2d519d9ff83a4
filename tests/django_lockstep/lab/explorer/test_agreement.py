"""The explorer agrees with itself and with PostgreSQL's own tool, on programs that nobody chose.

``RACE_EXAMPLES=1000`` takes as many examples of each, other ones every time; 50 run every night.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest
from django.db.models import Exists, F
from hypothesis import HealthCheck, Phase, assume, event, given, settings
from hypothesis import strategies as st

from django_lockstep.lab.explorer import Exploration, Scenario, ScheduleError, explore
from django_lockstep.lab.explorer.audit import RandomWalk, _Node
from django_lockstep.lab.explorer.spec.specs import write_spec
from django_lockstep.locking import isolated_transaction
from tests.django_lockstep.lab.explorer.isolationtester import disagreements, tables
from tests.django_lockstep.lab.explorer.programs import (
    LEVELS,
    Action,
    Program,
    actor,
    among,
    ends,
    inserting_last,
    orders_without_waiting,
    programs,
    programs_of,
    race,
    retried,
    seats,
    total,
)
from tests.testapps.shop.models import Seat, Ticket

pytestmark = pytest.mark.django_db(transaction=True)

MOST = 110 if "RACE_EXAMPLES" in os.environ else 60
"""Interleavings above which programs are left out."""

serializable = programs_of("serializable", most=2)
short = programs_of(*LEVELS, most=1)
briefly_serializable = programs_of("driver", most=1)


def examples(count: int) -> settings:
    """Take so many examples, always the same ones, or as many others as the environment says."""
    chosen = int(os.environ.get("RACE_EXAMPLES", count))
    return settings(
        max_examples=chosen,
        deadline=None,
        derandomize="RACE_EXAMPLES" not in os.environ,
        database=None,
        phases=[Phase.generate],  # programs are small already, and shrinking takes minutes
        suppress_health_check=list(HealthCheck),
    )


def agree(*raced: Program, does: Callable[[Program], Callable[[Any], int]] = actor, most: int = MOST) -> None:
    # Of programs with three times as many orders hardly any wait so much that few enough are left.
    assume(orders_without_waiting(*raced) <= 3 * most)
    scenario = among([does(program) for program in raced])
    full = explore(scenario, reduction="none", max_schedules=most)
    # Not with too many, nor of readers alone, nor where the server decided, which may come out otherwise the next time.
    assume(full.verdict not in {"incomplete", "vacuous"} and not full.unsteerable)
    reduced_agrees(scenario, full)


def reduced_agrees(scenario: Scenario, full: Exploration) -> None:
    reduced = explore(scenario)

    assert full.verdict == reduced.verdict == "holds", (full.reason, reduced.reason)
    assert ends(reduced) == ends(full)
    assert reduced.schedules <= full.schedules


def reads_more_once_the_first_has_changed(pks: list[int]) -> int:
    with isolated_transaction(isolation_level="repeatable read"):
        seen = total(seats(pks[0]))
        return seen if seen == 10 else seen + 1000 * total(seats(pks[1]))


def test_they_agree_on_a_snapshot_of_rows_that_only_some_schedules_come_to() -> None:
    adds = [actor(("none", (("add", number),))) for number in (0, 1)]
    scenario = among([reads_more_once_the_first_has_changed, *adds])
    reduced_agrees(scenario, explore(scenario, reduction="none"))


@pytest.mark.parametrize(("actors", "schedules"), [(2, 3), (3, 19)])
def test_snapshots_depend_on_commits_of_other_rows(actors: int, schedules: int) -> None:
    apart = race(*(("repeatable read", (("read", number), ("add", number))) for number in range(actors)))

    assert explore(apart).schedules == schedules


@pytest.mark.parametrize(
    ("write", "first", "read"),
    [(("add", 0), ("lock", 0), ("read", 0)), (("insert_key", 2), ("insert_key", 2), ("read_all", 0))],
    ids=["waits", "fails"],
)
def test_they_agree_on_a_write_that_commits_at_once_unless_another_actor_comes_first(
    write: Action, first: Action, read: Action
) -> None:
    scenario = race(("none", (write,)), ("read committed", (first,)), ("none", (read,)))
    reduced_agrees(scenario, explore(scenario, reduction="none"))


def test_they_agree_on_a_write_that_finds_nothing_once_another_table_has_changed() -> None:
    issues_first = actor(("read committed", (("insert_child", 2),)))
    scenario = among([raises_unless_issued, issues_first, actor(("none", (("read", 1),)))])
    reduced_agrees(scenario, explore(scenario, reduction="none"))


@pytest.mark.parametrize(
    "actors",
    [
        # The key of a new row may be on the index page that a read of another row has locked.
        pytest.param([(("insert_child", 1), ("insert_key", 1)), (("add", 1),)], id="index page"),
        # Of two in danger, who is refused depends on when the third one has read, and has ended.
        pytest.param([(("insert_key", 1), ("read_all", 1)), (("insert_key", 0),), (("read", 1),)], id="danger"),
        # A. Fekete, E. O'Neil, P. O'Neil, "A read-only transaction anomaly under snapshot isolation", 2004; with a
        # report of one row, whose snapshot counts against a COMMIT of another one.
        pytest.param([(("read", 1),), (("read", 0), ("add", 1)), (("add", 0),)], id="report"),
        # Of two who come too late for a row, and of one who does not.
        pytest.param([(("read", 0), ("add", 0)), (("add", 0),), (("add", 0),)], id="too late"),
    ],
)
def test_they_agree_on_serializable_transactions_of_which_some_are_refused(actors: list[tuple[Action, ...]]) -> None:
    scenario = race(*(("driver", actions) for actions in actors))
    full = explore(scenario, reduction="none")

    assert any(outcome.errors for outcome in full.outcomes)
    reduced_agrees(scenario, full)


def raises_unless_issued(pks: list[int]) -> int:
    return Seat.objects.filter(~Exists(Ticket.objects.all()), pk=pks[1]).update(price=F("price") + 1)


@examples(4)
@given(first=programs, second=programs)
def test_reduced_and_full_search_find_the_same_outcomes(first: Program, second: Program) -> None:
    agree(first, second)


@examples(2)
@given(first=serializable, second=serializable)
def test_they_agree_on_serializable_transactions_with_a_retry(first: Program, second: Program) -> None:
    agree(first, second, does=retried)


@examples(1)
@given(first=short, second=short, third=short)
def test_they_agree_on_three_actors(first: Program, second: Program, third: Program) -> None:
    agree(first, second, third, most=2 * MOST)


@examples(2)
@given(first=briefly_serializable, second=briefly_serializable, third=briefly_serializable)
def test_they_agree_on_three_serializable_actors(first: Program, second: Program, third: Program) -> None:
    agree(first, second, third, most=2 * MOST)


@examples(3)
@given(first=inserting_last(most=2), second=inserting_last(most=2))
def test_they_agree_on_serializable_transactions_that_insert_last(first: Program, second: Program) -> None:
    agree(first, second, does=retried)


@examples(1)
@given(first=inserting_last(most=1), second=briefly_serializable, third=briefly_serializable)
def test_they_agree_on_three_of_which_one_inserts_last(first: Program, second: Program, third: Program) -> None:
    agree(first, second, third, most=2 * MOST)


@examples(10)
@given(raced=st.lists(programs, min_size=2, max_size=3), seed=st.integers(0, 9999))
def test_a_random_schedule_comes_out_as_in_isolationtester(raced: list[Program], seed: int) -> None:
    scenario = race(*raced, observe=lambda pks: tables("shop_seat", "shop_ticket"))
    try:
        spec = write_spec(scenario, RandomWalk(str(seed), runs=_Node()))
        # A move without a statement is one that only the server decides.
        steered = not spec.run.unsteerable and len(spec.run.schedule) == len(spec.run.steps)
    except ScheduleError:
        steered = False
    event("steered" if steered else "the server alone decided the order of the waiters")
    assume(steered or len(raced) == 2)

    assert list(disagreements(spec)) == [], spec.text
