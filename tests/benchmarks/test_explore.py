"""The race lab's figures."""

import pytest

from accounts.races.ready_made import RACES
from benchmarks.explore import SUITE
from benchmarks.explore.measure import Repetition, measure_race
from benchmarks.suite import Options
from django_lockstep.lab.explorer import explore

pytestmark = pytest.mark.django_db(transaction=True)


def run(*only: str, repeat: int = 1) -> tuple[dict[str, object], bool, list[str]]:
    lines: list[str] = []
    # The seconds limit how long each race may take, on a slow machine too.
    section = SUITE.run(Options(seconds=100, only=only, repeat=repeat), say=lines.append)
    return section.data, section.sound, [table.title for table in section.tables]


def test_right_and_wrong_code_show_as_such() -> None:
    data, sound, titles = run("write-skew:*")
    two: dict[str, dict[str, dict[str, object]]] = data["two"]  # type: ignore[assignment]
    assert {name: figures["reduced"]["verdict"] for name, figures in two.items()} == {
        "write-skew:unlocked": "broken",
        "write-skew:locked": "holds",
    }
    assert all(figures["same_ends"] for figures in two.values())
    assert sound
    assert titles[0] == "Two actors"


def test_long_code_is_searched_around_its_writes() -> None:
    data, sound, titles = run("long:*")
    (figures,) = data["long"].values()  # type: ignore[attr-defined]
    assert (figures["verdict"], figures["statements"] > 110, sound) == ("nothing found", True, True)
    assert titles == ["Long code, directed"]


def test_out_of_time_leaves_the_rest_without_a_verdict() -> None:
    figures = measure_race(RACES["lost-update:serializable"], timeout=0)
    assert (figures.verdict, figures.complete, figures.expected) == ("incomplete", False, True)


def test_repeating_the_ready_made_set_gives_the_same_results() -> None:
    repetition = Repetition()
    for _ in range(2):
        repetition.again([RACES["lost-update:naive"], RACES["queue:skip-locked"]])
    assert (repetition.rounds, repetition.differing) == (2, set())


def test_another_outcome_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    repetition = Repetition()
    repetition.again([RACES["write-skew:unlocked"]])
    monkeypatch.setattr(
        "benchmarks.explore.measure.explore", lambda scenario, **options: explore(RACES["write-skew:locked"].scenario)
    )
    repetition.again([RACES["write-skew:unlocked"]])
    assert repetition.differing == {"write-skew:unlocked"}
