"""When dead rows are removed: before a run finds too little room in the first page of a table, and not sooner."""

import pytest

from django_lockstep.lab.explorer.tables.storage import Usage


@pytest.fixture
def usage() -> Usage:
    empty = Usage()
    empty.note_vacuum()
    return empty


def run_until_full(usage: Usage, *, each: int) -> tuple[int, int]:
    """Note runs that add so many bytes each; return how many there were, and how often was asked."""
    runs = asked = 0
    while True:
        runs += 1
        if runs > usage.due:
            asked += 1
            if usage.note(runs * each, runs=runs):
                return runs, asked


@pytest.mark.parametrize("each", [1, 100, 700, 2000, 5000])
def test_the_next_run_may_write_twice_as_much(usage: Usage, each: int) -> None:
    runs, _ = run_until_full(usage, each=each)

    assert (runs - 1) * each + 2 * each <= 8192 or runs == 1


def test_it_is_asked_only_when_that_may_be_near(usage: Usage) -> None:
    runs, asked = run_until_full(usage, each=100)

    assert runs == 62
    assert asked < 10


def test_a_table_that_is_never_written_is_asked_about_seldom(usage: Usage) -> None:
    assert not usage.note(0.0, runs=1)
    assert usage.due >= 1


def test_dead_rows_of_before_are_no_growth() -> None:
    usage = Usage()
    usage.note(5000.0, runs=1)
    usage.note(5100.0, runs=2)

    assert usage.growth == 100


def test_a_run_that_writes_more_than_any_before_counts(usage: Usage) -> None:
    usage.note(100.0, runs=1)
    usage.note(2100.0, runs=2)

    assert usage.growth == 2000
    assert usage.note(4200.0, runs=3)  # the next may write 4,000
