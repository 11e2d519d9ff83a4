"""The directed search: which schedules it runs, in which order, and what it finds."""

import uuid
from collections.abc import Collection

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.cache import cache
from django.db import transaction

from django_lockstep.lab.explorer import Scenario, explore, replay
from django_lockstep.lab.explorer.effects.footprints import Mode, lock, touch
from django_lockstep.lab.explorer.search.branches import Move
from django_lockstep.lab.explorer.search.directed import DirectedSearch
from django_lockstep.lab.explorer.search.schedules import SinglePreemption
from tests.django_lockstep.lab.explorer import stories
from tests.testapps.shop.models import Seat

Programs = list[list[str]]

pytestmark = pytest.mark.django_db(transaction=True)


# Which schedules


def move(actor: int, step: str) -> Move:
    """Return the move of ``r`` or ``w`` and a row: reading it, or writing and committing it."""
    kind, row = step[0], step[1]
    keys = frozenset({(row, 1)})
    if kind == "r":
        return Move(actor=actor, footprint=touch("read", keys))
    locks = [((row, 1), Mode.UPDATE)]
    footprint = lock("lock", locks) | touch("publish", keys) | lock("release", locks)
    return Move(actor=actor, footprint=footprint, writes=True, tables=frozenset({row}))


def run(chooser: SinglePreemption, programs: Programs) -> str:
    chooser.begin()
    left = [list(program) for program in programs]
    schedule = ""
    while enabled := [index for index, steps in enumerate(left) if steps]:
        chosen = chooser.choose(enabled)
        chooser.record(move(chosen, left[chosen].pop(0)))
        schedule += "ABC"[chosen]
    return schedule


def played(programs: Programs, functions: str = "abc", tables: Collection[str] = ()) -> list[str]:
    """Return the schedules in the order in which they were run."""
    search = DirectedSearch(functions[: len(programs)], tables=tables)
    schedules = []
    while chooser := search.take():
        schedules.append(run(chooser, programs))
        search.add(chooser)
    return schedules


def test_the_others_run_just_before_and_just_after_each_write() -> None:
    programs = [["rx", "wx", "ry", "wy", "ry"], ["wx", "wy"]]

    # Of B, whose writes are adjacent, after the first one is before the second one.
    assert set(played(programs)) == {"AAAAABB", "BBAAAAA", "ABBAAAA", "AABBAAA", "AAABBAA", "AAAABBA", "BAAAAAB"}


def test_of_actors_with_one_function_the_first_is_interrupted() -> None:
    two, three = [["rx", "wx", "wy"]] * 2, [["rx", "wx"], ["rx", "wx"], ["wx"]]

    assert played(two, "aa") == ["AAABBB", "ABBBAA", "AABBBA"]
    assert played(three, "aab") == ["AABBC", "CAABB", "ABBCA"]


def test_with_tables_only_writes_of_these_are_interrupted() -> None:
    programs = [["rx", "wx", "ry", "wy", "ry"], ["wx", "ry", "wy"]]

    assert set(played(programs, tables="y")) == {"AAAAABBB", "BBBAAAAA", "AAABBBAA", "AAAABBBA", "BBAAAAAB"}
    assert set(played(programs, tables="xy")) == set(played(programs))


def test_a_schedule_that_was_not_finished_is_run_again() -> None:
    search = DirectedSearch("ab")
    chooser = search.take()
    assert chooser is not None
    chooser.choose([0, 1])

    assert search.take() is chooser
    assert (run(chooser, [["wx"], ["wx"]]), search.left) == ("AB", 2)


# What it finds


def test_a_lost_update_is_found() -> None:
    result = explore(stories.raising(stories.naive), directed=True)

    # A serial order; one of two copies interrupted just before and just after its UPDATE.
    assert (result.verdict, result.schedules, result.directed) == ("broken", 3, True)
    assert result.failure is not None
    assert not replay(stories.raising(stories.naive), result.failure.schedule).holds


@pytest.mark.parametrize("actor", [stories.locked, stories.optimistic, stories.computed, stories.serializable])
def test_where_nothing_is_found_it_says_so_and_not_that_it_holds(actor: stories.Actor) -> None:
    result = explore(stories.raising(actor), directed=True)

    assert (result.verdict, result.reason) == ("nothing found", f"nothing found in {result.schedules} schedules")
    assert (result.ok, result.passed, result.left) == (False, True, 0)


def test_while_the_others_wait_one_interruption_is_enough() -> None:
    result = explore(stories.raising(stories.locked), directed=True)

    # After its lock, or after its UPDATE: the other one waits for the lock until the COMMIT.
    assert (result.schedules, result.waits) == (2, {"SELECT": 1})


def test_a_deadlock_is_found() -> None:
    result = explore(stories.opposite_transfers(), directed=True, no_deadlock=True)

    assert result.verdict == "broken"
    assert "Deadlock of A, B" in result.reason


@pytest.mark.parametrize("tables", [True, ["shop_seat"]])
def test_a_write_under_a_lock_that_is_held_is_interrupted_too(tables: bool | list[str]) -> None:
    def reserve(place: int) -> stories.Actor:
        def actor(pks: list[int]) -> None:
            with transaction.atomic():
                seat = Seat.objects.select_for_update().get(pk=pks[place])
                if not Seat.objects.filter(guest="Ada").exists():
                    Seat.objects.filter(pk=seat.pk).update(guest="Ada")

        return actor

    scenario = Scenario(set_up=stories.two_seats, actors=[reserve(0), reserve(1)])

    assert explore(scenario, directed=tables).verdict == "broken"


def test_a_reader_that_sees_half_of_a_change_is_found() -> None:
    def read_both(pks: list[int]) -> str:
        with transaction.atomic():
            return f"{stories.price(pks[0])} {stories.price(pks[1])}"

    scenario = Scenario(set_up=stories.two_seats, actors=[read_both, stories.move(0, 1)])

    assert explore(scenario, directed=True).verdict == "broken"


def test_its_serial_schedules_are_not_run_again_to_compare_with() -> None:
    counts = dict.fromkeys(("A", "B"), 0)

    def counting(name: str) -> stories.Actor:
        def actor(pk: int) -> None:
            counts[name] += 1
            stories.computed(pk)

        return actor

    scenario = Scenario(set_up=stories.one_seat, actors=[counting("A"), counting("B")])
    result = explore(scenario, directed=True)

    # Only the warm-up comes to the schedules, which A, B and B, A are two of.
    assert counts == dict.fromkeys(counts, result.schedules + 1)


def test_without_a_warm_up_only_a_wrong_schedule_is_repeated() -> None:
    runs: list[int] = []

    def counting(pk: int) -> None:
        runs.append(pk)
        stories.naive(pk)

    wrong = explore(stories.raising(counting), directed=True, warm_up=False)
    assert (wrong.verdict, len(runs)) == ("broken", 2 * (wrong.schedules + 1))
    runs.clear()
    first = explore(stories.raising(counting), directed=True, warm_up=False, max_schedules=1)
    assert (first.verdict, len(runs)) == ("incomplete", 2)


def test_random_columns_and_caches_are_learned_here_too() -> None:
    def cached(pk: int) -> None:
        ContentType.objects.get_for_model(Seat)
        cache.get_or_set("price", lambda: str(stories.price(pk)))
        Seat.objects.filter(pk=pk).update(guest=uuid.uuid4().hex)

    cache.clear()
    ContentType.objects.clear_cache()
    result = explore(Scenario(set_up=stories.one_seat, actors=[cached] * 2), directed=True)

    assert (result.verdict, result.not_compared) == ("nothing found", ("shop_seat.guest",))
