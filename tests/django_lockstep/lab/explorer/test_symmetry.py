"""Actors with one function, of which only one order of the first writes is run."""

import itertools
import re
from collections.abc import Mapping, Sequence
from io import StringIO
from random import Random
from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction

from django_lockstep.lab.explorer import Exploration, NotExplorable, Scenario, explore, replay
from django_lockstep.lab.explorer.effects.footprints import Footprint, Mode
from django_lockstep.lab.explorer.search.branches import Branch, Move, related
from django_lockstep.lab.explorer.search.dpor import Search
from django_lockstep.lab.explorer.search.symmetry import Admissions, exchanges, originals
from tests.django_lockstep.lab.explorer import stories
from tests.django_lockstep.lab.explorer.programs import unnamed_ends
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)

Program = str
"""The steps of an actor: a small letter writes a row, a capital one reads it."""
Step = tuple[int, int]
"""An actor and the number of its step."""


# The pure search, on toy programs


def footprint(step: str) -> Footprint:
    row = (step.lower(), 1)
    if step.isupper():
        return Footprint(reads=frozenset([row]))
    return Footprint(locks=frozenset([(row, Mode.UPDATE)]), publishes=frozenset([row]))


def run(search: Search | Branch, programs: Sequence[Program]) -> list[Move] | None:
    """Run one schedule under the rule of admissions, and return its moves; None if it was abandoned."""
    admissions = Admissions(programs if search.symmetric else ())  # type: ignore[arg-type]
    left, moves = [list(program) for program in programs], list[Move]()
    while ready := [actor for actor, steps in enumerate(left) if steps]:
        free = [actor for actor in ready if left[actor][0].isupper() or not admissions.holds_back(actor)]
        chosen = search.choose(free)
        if chosen is None:
            return None
        step = left[chosen].pop(0)
        admitted = step.islower() and admissions.is_first(chosen)
        begun = {actor for actor, steps in enumerate(left) if not steps} | ({chosen} if step.islower() else set())
        admits = admissions.note_begun(begun)
        moves.append(Move(actor=chosen, footprint=footprint(step), admits=admits, admitted=admitted))
        search.record(moves[-1])
    return moves


def runs(search: Search, programs: Sequence[Program]) -> list[list[Move]]:
    found = []
    while search.begin():
        if moves := run(search, programs):
            found.append(moves)
        search.finish()
    return found


def orders(moves: Sequence[Move]) -> frozenset[tuple[Step, Step]]:
    """Return the pairs of dependent steps, the earlier one first."""
    counts = [sum(move.actor == each.actor for move in moves[:number]) for number, each in enumerate(moves)]
    steps = [(move, (move.actor, count)) for move, count in zip(moves, counts, strict=True)]
    return frozenset(
        (one, other)
        for (earlier, one), (later, other) in itertools.combinations(steps, 2)
        if related(Move(actor=earlier.actor, footprint=earlier.footprint), later)
    )


def classes(found: list[list[Move]], programs: Sequence[Program]) -> set[tuple[Any, ...]]:
    """Return the schedules up to the order of independent steps and the exchange of actors with one program."""

    def exchanged(pairs: frozenset[tuple[Step, Step]], order: tuple[int, ...]) -> tuple[Any, ...]:
        return tuple(sorted(tuple((order[actor], number) for actor, number in pair) for pair in pairs))

    return {min(exchanged(orders(moves), order) for order in exchanges(programs)) for moves in found}


def random_programs(random: Random) -> list[Program]:
    actors = random.choice([2, 3, 3])
    lengths = [random.randint(1, 6 // actors) for _ in range(random.choice([1, 1, 2]))]
    kinds = ["".join(random.choices("xyzXYZ", k=length)) for length in lengths]
    return [random.choice(kinds) for _ in range(actors)]


@pytest.mark.parametrize("seed", range(6))
def test_every_schedule_is_one_of_those_run_with_actors_exchanged(seed: int) -> None:
    random = Random(seed)
    for programs in [random_programs(random) for _ in range(25)]:
        full = runs(Search(reduce=False), programs)
        expected = classes(full, programs)

        assert classes(runs(Search(symmetric=True), programs), programs) == expected
        assert classes(runs(Search(reduce=False, symmetric=True), programs), programs) == expected


@pytest.mark.parametrize(
    ("programs", "reduced", "symmetric"), [(["x"] * 3, 6, 1), (["x"] * 4, 24, 1), (["Xx"] * 3, 36, 6)]
)
def test_only_one_order_of_the_first_writes_is_run(programs: list[Program], reduced: int, symmetric: int) -> None:
    assert len(runs(Search(), programs)) == reduced
    assert len(runs(Search(symmetric=True), programs)) == symmetric


def test_actors_with_other_programs_have_all_their_orders() -> None:
    assert len(runs(Search(symmetric=True), ["xx", "yx"])) == len(runs(Search(), ["xx", "yx"]))


def test_an_actor_is_admitted_by_the_one_before_it_when_that_begins_or_ends() -> None:
    admissions = Admissions([sum, max, sum, sum])

    assert [admissions.holds_back(actor) for actor in range(4)] == [False, False, True, True]
    assert admissions.note_begun([0]) == {2}
    assert (admissions.is_first(2), admissions.note_begun([0, 2])) == (True, {3})
    assert (admissions.is_first(2), admissions.holds_back(3)) == (False, False)


def test_the_same_function_is_the_same_object() -> None:
    assert originals([sum, max, sum]) == [0, 1, 0]
    assert sorted(exchanges([sum, max, sum])) == [(0, 1, 2), (2, 1, 0)]


# Races


def both(actor: stories.Actor, *, actors: int = 2, **options: Any) -> tuple[Exploration, Exploration]:
    scenario = Scenario(set_up=stories.one_seat, actors=[actor] * actors, **{"observe": stories.price, **options})
    return explore(scenario), explore(scenario, reduction="symmetric")


def raises_if_late(pk: int) -> str:
    seen = stories.price(pk)
    with transaction.atomic():
        if not Seat.objects.filter(pk=pk, price=seen).update(price=seen + 10):
            raise LookupError("too late")
    return "in time"


@pytest.mark.parametrize("actors", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "actor", [stories.naive, stories.locked, stories.optimistic, stories.serializable, raises_if_late]
)
def test_the_same_ends_are_found_in_fewer_schedules(actor: stories.Actor, actors: int) -> None:
    if actor is stories.serializable and actors == 3:
        actors = 2  # too many schedules without it
    full, symmetric = both(actor, actors=actors, invariant=bool)

    assert unnamed_ends(symmetric) == unnamed_ends(full)
    assert symmetric.schedules * actors <= full.schedules


def test_the_verdict_says_it() -> None:
    full, symmetric = both(stories.computed, invariant=lambda pk: stories.price(pk) == 120)

    assert full.reason == f"Every interleaving was explored, in {full.schedules} schedules"
    assert symmetric.reason.startswith(
        "Every interleaving was explored, up to the exchange of actors with one function, in "
    )


def test_a_wrong_schedule_can_be_run_again_without_it() -> None:
    scenario = Scenario(set_up=stories.one_seat, actors=[stories.naive] * 2)
    found = explore(scenario, reduction="symmetric")

    assert found.verdict == "broken"
    assert found.failure is not None
    assert replay(scenario, found.failure.schedule).differences == found.failure.differences
    assert not replay(scenario, "BABA").holds  # of which the names are exchanged


def test_one_that_is_late_in_every_schedule_is_not_vacuous() -> None:
    def refuses_the_second(pk: int) -> None:
        with transaction.atomic():
            seat = Seat.objects.select_for_update().get(pk=pk)
            if seat.price > 100:
                raise LookupError("taken")
            Seat.objects.filter(pk=pk).update(price=110)

    _, symmetric = both(refuses_the_second, invariant=lambda pk: stories.price(pk) == 110)

    assert [dict(each.errors) for each in symmetric.outcomes] == [{"B": "LookupError"}]
    assert symmetric.verdict == "holds"


def test_what_all_of_them_do_in_every_schedule_is_still_vacuous() -> None:
    def mistaken(pk: int) -> None:
        stories.price(pk)
        raise TypeError("no such seat")

    _, symmetric = both(mistaken, invariant=bool)

    assert symmetric.reason.startswith("nothing was raced: A raised TypeError: no such seat in ")


def the_first_is_in_time(pk: int, results: Mapping[str, Any], errors: Mapping[str, BaseException]) -> bool:
    return "A" in results


def one_is_in_time(pk: int, results: Mapping[str, Any], errors: Mapping[str, BaseException]) -> bool:
    return len(results) + len(errors) == 2 and "in time" in results.values()


def test_an_invariant_that_tells_the_actors_apart_is_refused() -> None:
    scenario = Scenario(set_up=stories.one_seat, actors=[raises_if_late] * 2, invariant=the_first_is_in_time)

    assert explore(scenario).verdict == "broken"
    with pytest.raises(NotExplorable, match="tells actors with one and the same function apart"):
        explore(scenario, reduction="symmetric")


def test_an_invariant_about_the_results_of_all_is_not() -> None:
    full, symmetric = both(raises_if_late, invariant=one_is_in_time)

    assert (full.verdict, symmetric.verdict) == ("holds", "holds")


@pytest.mark.slow
def test_on_the_shell() -> None:
    def schedules(reduction: str) -> int:
        out = StringIO()
        call_command("explore", "lost-update:advisory", actors=3, reduction=reduction, stdout=out)
        (number,) = re.findall(r"holds \((\d+) schedules", out.getvalue())
        return int(number)

    # A withdrawal, and two deposits with one function.
    assert schedules("dpor") == 2 * schedules("symmetric")
