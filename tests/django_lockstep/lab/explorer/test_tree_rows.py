"""The tree of schedules line by line, as pages nest it."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from django_lockstep.lab.explorer import explore
from django_lockstep.lab.explorer.render import tree_rows as module
from django_lockstep.lab.explorer.render.tree_rows import TreeRow, tree_rows
from tests.django_lockstep.lab.explorer import stories

WRONG, RIGHT = SimpleNamespace(holds=False), SimpleNamespace(holds=True)


def rows(**ends: int) -> list[TreeRow]:
    exploration: Any = SimpleNamespace(ends=ends, outcomes=(WRONG, RIGHT))
    return list(tree_rows(exploration))


def test_each_line_says_how_its_schedules_ended_and_each_fork_is_closed_behind_what_it_leads_to() -> None:
    assert [(row.kind, row.schedule, row.moves, row.look, row.text) for row in rows(AAC=1, AB=0, AAA=1)] == [
        ("fork", "A", "A", "wrong", "3 schedules: wrong (Outcome 1), right (Outcome 2)"),
        ("fork", "AA", "A", "right", "2 schedules: right (Outcome 2)"),
        ("run", "AAA", "A", "right", "right (Outcome 2)"),
        ("run", "AAC", "C", "right", "right (Outcome 2)"),
        ("end", "", "", "right", ""),
        ("run", "AB", "B", "wrong", "wrong (Outcome 1)"),
        ("end", "", "", "right", ""),
    ]


def test_schedules_that_begin_differently_begin_in_one_line_without_moves() -> None:
    assert [(row.kind, row.moves) for row in rows(AB=1, BA=1)] == [
        ("fork", ""),
        ("run", "AB"),
        ("run", "BA"),
        ("end", ""),
    ]


def test_a_large_tree_shows_what_ends_alike_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 2)
    assert [(row.kind, row.schedule, row.text) for row in rows(AAC=1, AB=0, AAA=1)] == [
        ("fork", "A", "3 schedules: wrong (Outcome 1), right (Outcome 2)"),
        ("folded", "AA", "2 schedules: right (Outcome 2)"),
        ("run", "AB", "wrong (Outcome 1)"),
        ("end", "", ""),
    ]


def test_it_is_as_deep_as_runs_are_long() -> None:
    deep = sys.getrecursionlimit() + 10
    lines = rows(**{"A" * length + "B": length % 2 for length in range(deep)})
    assert [row.kind for row in lines].count("run") == deep


@pytest.mark.django_db(transaction=True)
def test_every_schedule_is_in_it_with_its_outcome() -> None:
    result = explore(stories.raising(stories.naive))
    assert len(result.ends) == result.schedules
    assert {result.ends[outcome.schedule]: outcome for outcome in result.outcomes} == dict(enumerate(result.outcomes))
    assert [row.schedule for row in tree_rows(result) if row.kind == "run"] == sorted(result.ends)
