"""The pure search, on toy programs without threads and databases."""

import math
from collections.abc import Collection

import pytest

from django_lockstep.lab.explorer.errors import Nondeterminism
from django_lockstep.lab.explorer.footprints import Footprint, Mode
from django_lockstep.lab.explorer.search import Move, Search

Programs = list[list[str]]


def writing(row: str) -> Footprint:
    return Footprint(locks=frozenset({((row, 1), Mode.UPDATE)}))


def played(search: Search, programs: Programs) -> set[str]:
    """Run every schedule of programs whose steps each write one row; return them."""
    seen = set()
    while search.begin():
        left = [list(program) for program in programs]
        schedule = ""
        while enabled := [index for index, steps in enumerate(left) if steps]:
            chosen = search.choose(enabled)
            if chosen is None:
                break
            search.record(Move(actor=chosen, footprint=writing(left[chosen].pop(0))))
            schedule += "ABC"[chosen]
        else:
            seen.add(schedule)
        search.finish()
    return seen


def classes(schedules: Collection[str], programs: Programs) -> set[tuple[tuple[str, ...], ...]]:
    """Return the schedules up to the order of independent steps: who wrote each row in which order."""
    found = set()
    for schedule in schedules:
        left = [list(program) for program in programs]
        orders: dict[str, list[str]] = {}
        for letter in schedule:
            orders.setdefault(left["ABC".index(letter)].pop(0), []).append(letter)
        found.add(tuple(sorted((row, *order) for row, order in orders.items())))
    return found


PROGRAMS: list[Programs] = [
    [["x", "y"], ["y", "x"]],
    [["x", "x", "y"], ["z", "x"]],
    [["x"], ["x"], ["x"]],
    [["x", "y"], ["y", "z"], ["z", "x"]],
    [["a"], ["b"], ["c"]],
    [["x", "a", "y"], ["b", "x", "y"], ["y"]],
]


@pytest.mark.parametrize("programs", PROGRAMS)
def test_without_reduction_every_interleaving_is_run(programs: Programs) -> None:
    lengths = [len(program) for program in programs]
    expected = math.factorial(sum(lengths)) // math.prod(map(math.factorial, lengths))

    assert len(played(Search(reduce=False), programs)) == expected


@pytest.mark.parametrize("programs", PROGRAMS)
def test_reduction_runs_each_class_of_equivalent_schedules_once(programs: Programs) -> None:
    full, reduced = played(Search(reduce=False), programs), played(Search(), programs)

    assert classes(reduced, programs) == classes(full, programs)
    assert len(reduced) == len(classes(full, programs))


def test_the_first_schedules_have_no_preemption() -> None:
    search = Search()
    search.begin()
    order = []
    for enabled in ([0, 1], [0, 1], [1], [1]):
        order.append(search.choose(enabled))
        search.record(Move(actor=order[-1] or 0, footprint=writing("x")))

    assert order == [0, 0, 1, 1]


def test_a_bound_of_preemptions_leaves_the_rest_out_and_counts_it() -> None:
    programs = [["x", "y"], ["y", "x"]]
    search = Search(preemptions=0)

    assert played(search, programs) == {"AABB", "BBAA"}
    assert search.left > 0
    assert played(Search(preemptions=9), programs) == played(Search(reduce=False), programs)


def test_other_actors_in_a_known_state_are_nondeterminism() -> None:
    search = Search(reduce=False)
    search.begin()
    search.choose([0, 1])
    search.record(Move(actor=0, footprint=writing("x")))
    search.choose([1])
    search.record(Move(actor=1, footprint=writing("x")))
    search.finish()
    search.begin()

    with pytest.raises(Nondeterminism, match="step 1"):
        search.choose([1])
