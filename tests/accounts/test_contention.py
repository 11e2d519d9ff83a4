"""What a process remembers of conflicts."""

import random
from collections.abc import Iterator

import pytest

from accounts.contention import Contention


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    before = random.getstate()
    random.seed(1)
    yield
    random.setstate(before)


def after(*conflicts: bool, contention: Contention | None = None) -> Contention:
    contention = contention or Contention(probe=0)
    for conflict in conflicts:
        contention.record("row", conflict=conflict)
    return contention


def test_a_row_is_calm_until_conflicts_are_frequent() -> None:
    assert not after().prefers_lock("row")
    assert not after(True).prefers_lock("row")
    assert after(True, True).prefers_lock("row")
    assert not after(*[*[False] * 7, True] * 5).prefers_lock("row")


def test_a_row_calms_down() -> None:
    contention = after(*[True] * 10)
    assert contention.prefers_lock("row")
    assert not after(*[False] * 6, contention=contention).prefers_lock("row")


def test_each_row_for_itself() -> None:
    assert not after(True, True).prefers_lock("other row")


def test_now_and_then_a_contended_row_is_tried_all_the_same() -> None:
    contention = after(*[True] * 10, contention=Contention(probe=0.1))
    tried = sum(not contention.prefers_lock("row") for _ in range(1000))
    assert 50 < tried < 200


def test_only_so_many_rows_are_remembered() -> None:
    contention = Contention(probe=0, rows=2)
    for row in ("a", "b", "a", "c"):
        for _ in range(3):
            contention.record(row, conflict=True)
    assert [contention.prefers_lock(row) for row in "abc"] == [True, False, True]


def test_it_forgets_when_asked_to() -> None:
    contention = after(True, True)
    contention.clear()
    assert not contention.prefers_lock("row")
