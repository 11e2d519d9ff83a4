"""The figures of explorations by several processes: one with other ends is not sound."""

from typing import Any

import pytest

from accounts.races.ready_made import RACES
from benchmarks import processes
from benchmarks.explore.measure import ends
from benchmarks.random_races import random_race
from benchmarks.suite import Options, Section
from django_lockstep.lab.explorer import explore

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def few_races(no_tests: None, dasks_leftovers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "RACES", {name: RACES[name] for name in ("lost-update:naive", "queue:skip-locked")})
    monkeypatch.setattr(processes, "_RANDOM", 1)


def run(*only: str) -> tuple[Section, tuple[tuple[Any, ...], ...]]:
    # The seconds limit how long each race may take, on a slow machine too.
    section = processes.SUITE.run(Options(seconds=100, only=only), say=lambda line: None)
    (table,) = section.tables
    return section, table.rows


@pytest.mark.usefixtures("few_races")
def test_two_processes_and_a_cluster_come_to_the_ends_of_one() -> None:
    section, rows = run("agreement")

    assert section.sound
    for row, expected in zip(rows, [("ready-made", 2), ("random", 1)], strict=True):
        kind, races, one, two, cluster, most, differing = row
        assert (kind, races, two, cluster, most, differing) == (*expected, one, one, 1.0, "none")


@pytest.mark.usefixtures("few_races")
def test_other_ends_are_not_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        processes,
        "explore",
        lambda scenario, *, processes=1, cluster=None, load=None, **limits: explore(
            RACES["lost-update:pessimistic"].scenario if processes == 2 else scenario, **limits
        ),
    )
    section, ((*_, differing), (*_, of_random)) = run("agreement")

    assert not section.sound
    assert differing == "lost-update:naive, queue:skip-locked"
    assert of_random == "random:0"


def test_rates_are_those_of_the_schedules_that_count(no_tests: None, monkeypatch: pytest.MonkeyPatch) -> None:
    near = processes._Place(distant=False, workers=2, first=2, count=3)
    monkeypatch.setattr(processes, "_PLACES", {"near": near})
    limits = []

    def noted(scenario: Any, **options: Any) -> Any:
        limits.append((options["processes"], options["max_schedules"]))
        return explore(scenario, **options)

    monkeypatch.setattr(processes, "explore", noted)
    section = processes.SUITE.run(Options(rounds=1, seconds=1, only=("rates",)), say=lambda line: None)
    rates = section.data["rates"]["near"]

    assert limits == [(1, 5), (2, 5)]
    assert rates["ratio"] == rates["lowest"] == rates["highest"] == rates["several"] / rates["one"]
    assert rates["served"] == pytest.approx(1000 / rates["one"] / rates["leading_ms"])
    (table,) = section.tables
    assert [len(row) for row in table.rows] == [len(table.columns)]


def test_a_random_race_is_the_same_each_time() -> None:
    first, again = (explore(random_race(1)) for _ in range(2))

    assert first.verdict == "holds"
    assert (first.schedules, ends(first)) == (again.schedules, ends(again))


@pytest.mark.parametrize("story", ["deposits", "ring"])
def test_four_actors_lose_nothing_with_row_locks_and_something_without(story: str) -> None:
    safe = explore(processes.four(f"{story}:pessimistic"), max_schedules=10)
    naive = explore(processes.four(f"{story}:naive"), directed=True, stop_on_first=True)

    assert safe.verdict == "incomplete"
    assert naive.verdict == "broken"


@pytest.mark.parametrize("distant", [False, True])
def test_the_race_for_rates_is_correct_and_has_more_than_can_be_run(*, distant: bool) -> None:
    found = explore(processes.big(distant=distant), max_schedules=2)

    assert (found.verdict, bool(found.left)) == ("incomplete", True)
