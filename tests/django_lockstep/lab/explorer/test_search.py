"""The pure search, on toy programs without threads and databases."""

import math
import pickle
from collections.abc import Collection
from random import Random

import pytest

from django_lockstep.lab.explorer.effects.footprints import Footprint, Mode, lock
from django_lockstep.lab.explorer.errors import Nondeterminism
from django_lockstep.lab.explorer.search.branches import Branch, Move
from django_lockstep.lab.explorer.search.dpor import Search

Programs = list[list[str]]
"""The steps of each actor; a step is the rows that it writes."""


def writing(rows: str) -> Footprint:
    return lock("lock", [((row, 1), Mode.UPDATE) for row in rows])


def run(branch: Branch, programs: Programs) -> str | None:
    """Run one schedule and return it; None if it was abandoned."""
    left = [list(program) for program in programs]
    schedule = ""
    while enabled := [index for index, steps in enumerate(left) if steps]:
        chosen = branch.choose(enabled)
        if chosen is None:
            return None
        branch.record(Move(actor=chosen, footprint=writing(left[chosen].pop(0))))
        schedule += "ABCD"[chosen]
    return schedule


def runs(search: Search, programs: Programs) -> list[str | None]:
    """Run every schedule, one after the other."""
    schedules = []
    while branch := search.take():
        schedules.append(run(branch, programs))
        search.add(branch)
    return schedules


def played(search: Search, programs: Programs) -> set[str]:
    return set(filter(None, runs(search, programs)))


def classes(schedules: Collection[str | None], programs: Programs) -> set[tuple[tuple[str, ...], ...]]:
    """Return the complete schedules up to the order of independent steps: who wrote each row in which order."""
    orders_by_row = set()
    for schedule in filter(None, schedules):
        left = [list(program) for program in programs]
        orders: dict[str, list[str]] = {}
        for letter in schedule:
            for row in left["ABCD".index(letter)].pop(0):
                orders.setdefault(row, []).append(letter)
        orders_by_row.add(tuple(sorted((row, *order) for row, order in orders.items())))
    return orders_by_row


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
    branch = Search().take()
    assert branch is not None
    order = []
    for enabled in ([0, 1], [0, 1], [1], [1]):
        order.append(branch.choose(enabled))
        branch.record(Move(actor=order[-1] or 0, footprint=writing("x")))

    assert order == [0, 0, 1, 1]


def test_other_actors_in_a_known_state_are_nondeterminism() -> None:
    search = Search(reduce=False)
    first = search.take()
    assert first is not None
    run(first, [["x"], ["x"]])
    search.add(first)

    second = search.take()
    assert second is not None
    with pytest.raises(Nondeterminism, match="step 1"):
        second.choose([1])


# Several branches at the same time


def runs_at_the_same_time(search: Search, programs: Programs, *, most: int, random: Random) -> list[str | None]:
    """Run every schedule, up to so many at the same time, as other processes would: they end in any order."""
    schedules: list[str | None] = []
    running: list[Branch] = []
    while True:
        while len(running) < most and (branch := search.take()):
            running.append(sent(branch))
        if not running:
            return schedules
        branch = running.pop(random.randrange(len(running)))
        schedules.append(run(branch, programs))
        search.add(sent(branch))


def sent(branch: Branch) -> Branch:
    copy: Branch = pickle.loads(pickle.dumps(branch))  # noqa: S301 - made right here
    return copy


def random_programs(random: Random) -> Programs:
    def step() -> str:
        return "".join(random.sample("abcdxyz", random.choice([1, 1, 2])))

    actors = random.choice([2, 3, 3, 4])
    return [[step() for _ in range(random.randint(1, 8 // actors))] for _ in range(actors)]


@pytest.mark.parametrize("most", [2, 8])
def test_however_many_run_at_the_same_time_each_class_is_run_and_hardly_any_twice(most: int) -> None:
    random = Random(most)
    together = one_by_one = 0
    for programs in [random_programs(random) for _ in range(60)]:
        expected = runs(Search(), programs)
        schedules = runs_at_the_same_time(Search(), programs, most=most, random=random)

        assert classes(schedules, programs) == classes(played(Search(reduce=False), programs), programs)
        together, one_by_one = together + len(schedules), one_by_one + len(expected)
    assert together <= 1.02 * one_by_one


def test_without_reduction_the_schedules_are_the_same_however_many_run() -> None:
    for programs in PROGRAMS:
        schedules = runs_at_the_same_time(Search(reduce=False), programs, most=5, random=Random(5))
        assert sorted(filter(None, schedules)) == sorted(played(Search(reduce=False), programs))


def test_a_branch_that_was_taken_before_the_search_started_over_is_ignored() -> None:
    search, programs = Search(), [["x"], ["x"]]
    late = search.take()
    assert late is not None
    run(late, programs)
    search.start_over()
    search.add(late)

    assert sorted(filter(None, runs(search, programs))) == ["AB", "BA"]
    assert search.left == 0


def test_what_is_left_counts_branches_that_are_running() -> None:
    search, programs = Search(), [["x"], ["x"]]
    assert search.left == 1
    first = search.take()
    assert first is not None
    assert (search.left, search.take()) == (1, None)
    run(first, programs)
    search.add(first)
    assert search.left == 1
