"""Runs as people read them."""

import pytest

from django_lockstep.lab.explorer import Run, Step, explore, replay, timeline
from django_lockstep.lab.explorer.measure import wide
from tests.django_lockstep.lab.explorer import stories

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_lost_update_is_drawn_and_named() -> None:
    failure = explore(stories.raising(stories.naive)).failure
    assert failure is not None

    drawn = timeline(failure).splitlines()

    assert drawn[0] == "schedule AABBAB, WRONG"
    assert drawn[1].split() == ["step", "A", "B"]
    assert "┌ SELECT shop_seat id=" in drawn[3]
    assert "│ → price=100.00" in drawn[4]
    assert drawn[-1].startswith("lost update: ")


def test_the_step_that_breaks_is_marked_in_its_actors_column() -> None:
    drawn = timeline(replay(stories.raising(stories.naive), "AABBAB")).splitlines()
    (marked,) = [line for line in drawn if "▲ here it breaks: lost update" in line]

    assert marked.index("▲") > 44, "B's column is to the right of A's"


def test_waits_say_for_whom_and_who_ended_them() -> None:
    drawn = timeline(replay(stories.raising(stories.locked), "ABAA"))

    assert "┆ waits for A on shop_seat id=" in drawn
    assert "┆ woken by A" in drawn
    assert "→ price=110.00" in drawn


def test_a_wait_is_drawn_while_others_move() -> None:
    drawn = timeline(replay(stories.raising(stories.locked), "ABAA")).splitlines()
    (moved,) = [line for line in drawn if "UPDATE shop_seat" in line and "│ ┆" in line]

    assert moved.index("UPDATE") < moved.index("┆")


def test_transactions_have_a_beginning_and_an_end() -> None:
    drawn = timeline(replay(stories.raising(stories.naive), "AAABBB"))

    assert drawn.count("┌ SELECT") == drawn.count("└ COMMIT") == 2


def test_what_is_set_is_shown_in_short() -> None:
    drawn = timeline(replay(stories.raising(stories.computed), ""), width=60)

    assert "UPDATE shop_seat id=" in drawn
    assert ": price=price+10" in drawn


def test_a_deadlock_is_drawn_with_its_error() -> None:
    drawn = timeline(replay(stories.opposite_transfers(), "ABAB"))

    assert "→ error 40P01" in drawn
    assert "▲ deadlock, ended here" in drawn


def strange_run(sql: str) -> Run:
    step = Step(actor="A", begun=0, ended=0, sql=sql, params="")
    return Run(schedule="A", preemptions=0, steps=(step,), errors={}, results={}, state=sql, holds=True)


@pytest.mark.parametrize("sql", ["SELECT\n\x1b[31m 1", "SELECT '検索検索検索'" * 20, "x" * 500])
def test_no_statement_leaves_its_column(sql: str) -> None:
    drawn = timeline(strange_run(sql), width=40).splitlines()

    assert "\x1b" not in "".join(drawn)
    assert wide(drawn[3]) <= 6 + 40
