"""The schedules of an exploration as a tree."""

import pickle
import sys
from typing import Any

import pytest

from django_lockstep.lab.explorer import Exploration, explore
from django_lockstep.lab.explorer.search.branches import State
from django_lockstep.lab.explorer.search.tree import Cut, TreeBuilder, TreeLine
from tests.django_lockstep.lab.explorer import stories


def run(schedule: str, *, enabled: str = "AB", asleep: str = "") -> list[State]:
    """States in which these actors can move, and of which some sleep in the first one."""
    ready, sleeping = tuple(map("AB".index, enabled)), {"AB".index(actor): Any for actor in asleep}
    moves = list(map("AB".index, schedule))
    return [State(enabled=ready, chosen=move, sleep={} if number else sleeping) for number, move in enumerate(moves)]  # type: ignore[arg-type]


def built(*runs: tuple[list[State], str | None], finished: bool = True) -> tuple[TreeLine, ...]:
    builder = TreeBuilder()
    for states, end in runs:
        builder.add(states, end)
    return builder.build({"right": 0, "wrong": 1}, finished=finished)


# What it is


def test_a_sleeping_move_says_so_whatever_ended_the_search() -> None:
    (line,) = built((run("A", asleep="B"), "right"), finished=False)
    assert line.cuts == (Cut(schedule="B", reason="asleep"),)


@pytest.mark.slow
def test_it_is_as_deep_as_runs_are_long() -> None:
    deep = sys.getrecursionlimit() + 10
    runs = [(run("A" * length + "B"), "right") for length in range(deep)]
    lines = built(*runs, (run("A" * deep), "right"))
    assert (lines[0].ends, max(line.depth for line in lines)) == ({0: deep + 1}, deep)
    assert pickle.loads(pickle.dumps(lines)) == lines  # noqa: S301 - made right here


# What an exploration keeps


def explored(actor: stories.Actor, **options: Any) -> Exploration:
    return explore(stories.raising(actor), tree=True, **options)


@pytest.mark.django_db(transaction=True)
class TestExplorations:
    def test_every_schedule_is_in_it_with_its_outcome(self) -> None:
        result = explored(stories.naive)
        assert result.tree is not None
        counts: dict[int | None, int] = {number: outcome.count for number, outcome in enumerate(result.outcomes)}
        abandoned: dict[int | None, int] = {None: result.redundant} if result.redundant else {}
        assert result.tree[0].ends == counts | abandoned
        ends = {line.schedule for line in result.tree if not line.fork}
        assert {outcome.schedule for outcome in result.outcomes} <= ends
        assert len(ends) == result.schedules + result.redundant

    def test_every_way_to_go_on_was_run_or_says_why_not(self) -> None:
        full, reduced = explored(stories.naive, reduction="none"), explored(stories.naive)
        assert full.tree is not None
        assert reduced.tree is not None
        assert [line.cuts for line in full.tree if line.cuts] == []
        # Each schedule that the reduction left out goes through a cut branch.
        run = {line.schedule for line in reduced.tree if not line.fork}
        cut = [cut.schedule for line in reduced.tree for cut in line.cuts]
        left_out = {line.schedule for line in full.tree if not line.fork} - run
        assert left_out
        assert [schedule for schedule in left_out if not schedule.startswith(tuple(cut))] == []
        assert [schedule for schedule in run if schedule.startswith(tuple(cut))] == []
        assert {cut.reason for line in reduced.tree for cut in line.cuts} <= {"independent", "asleep"}

    def test_what_a_search_that_was_ended_left_is_not_called_needless(self) -> None:
        result = explored(stories.naive, max_schedules=1)
        assert result.tree is not None
        reasons = {cut.reason for line in result.tree for cut in line.cuts}
        assert "left" in reasons
        assert "independent" not in reasons

    def test_nothing_is_kept_unless_asked_for(self) -> None:
        assert explore(stories.raising(stories.naive)).tree is None
        assert explored(stories.naive, directed=True).tree is None
