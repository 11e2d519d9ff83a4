"""The tree of schedules line by line, as pages nest it, and as a drawing."""

from types import SimpleNamespace
from typing import Any

from django_lockstep.lab.explorer.render import tree_rows as module
from django_lockstep.lab.explorer.render.tree_rows import TreeRow, tree_rows
from django_lockstep.lab.explorer.search.tree import Cut, TreeLine

RIGHT, WRONG = SimpleNamespace(holds=True), SimpleNamespace(holds=False)
CUT = Cut(schedule="AAB", reason="asleep")


def line(depth: int, schedule: str, moves: str, *, fork: bool = False, cuts: tuple[Cut, ...] = (), **ends: int) -> Any:
    counted: dict[int | None, int] = {{"wrong": 0, "right": 1, "abandoned": None}[name]: n for name, n in ends.items()}
    start = schedule.removesuffix(moves)
    return TreeLine(depth=depth, start=start, moves=moves, cuts=cuts, fork=fork, ends=counted)


LINES = (
    line(0, "A", "A", fork=True, wrong=1, right=2),
    line(1, "AA", "A", fork=True, cuts=(CUT,), right=2),
    line(2, "AAA", "A", right=1),
    line(2, "AAC", "C", cuts=(CUT,), right=1),
    line(1, "AB", "B", wrong=1),
)


def exploration(*lines: TreeLine, schedules: int = 3) -> Any:
    return SimpleNamespace(tree=lines, schedules=schedules, outcomes=(WRONG, RIGHT))


def rows(*, schedules: int = 3) -> list[TreeRow]:
    return list(tree_rows(exploration(*LINES, schedules=schedules)))


def test_each_line_says_what_became_of_its_moves_and_each_fork_is_closed_behind_what_it_leads_to() -> None:
    asleep = "not run: an equivalent schedule has this move earlier"
    assert [(row.kind, row.schedule, row.look, row.text) for row in rows()] == [
        ("fork", "A", "wrong", "3 schedules: wrong (Outcome 1), right (Outcome 2)"),
        ("fork", "AA", "right", "2 schedules: right (Outcome 2)"),
        ("cut", "AAB", "cut", asleep),
        ("run", "AAA", "right", "right (Outcome 2)"),
        ("run", "AAC", "right", "right (Outcome 2)"),
        ("cut", "AAB", "cut", asleep),
        ("end", "", "cut", ""),
        ("run", "AB", "wrong", "wrong (Outcome 1)"),
        ("end", "", "cut", ""),
    ]


def test_a_large_tree_shows_what_ends_alike_in_one_line() -> None:
    assert [(row.kind, row.schedule, row.text) for row in rows(schedules=module._MOST + 1)] == [
        ("fork", "A", "3 schedules: wrong (Outcome 1), right (Outcome 2)"),
        ("folded", "AA", "2 schedules: right (Outcome 2); 2 branches not run"),
        ("run", "AB", "wrong (Outcome 1)"),
        ("end", "", ""),
    ]


def test_an_abandoned_schedule_is_marked_as_not_run() -> None:
    (row,) = tree_rows(exploration(line(0, "AB", "AB", abandoned=1)))
    assert (row.look, row.text) == ("cut", "abandoned: an equivalent schedule was run")
