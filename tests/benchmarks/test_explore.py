"""The figures of the race lab and of the finder."""

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from accounts.models import Account
from accounts.races.ready_made import RACES
from benchmarks import find_races
from benchmarks.explore import SUITE
from benchmarks.explore.measure import measure_race
from benchmarks.suite import Options, Section
from tests.testapps.seeded_shop.units import UNITS

pytestmark = pytest.mark.django_db(transaction=True)


def run(*only: str) -> tuple[dict[str, object], bool, list[str]]:
    lines: list[str] = []
    # The seconds limit how long each race may take, on a slow machine too.
    section = SUITE.run(Options(seconds=100, only=only), say=lines.append)
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


def test_what_another_suite_has_left_is_not_counted(account: Account) -> None:
    data, sound, _ = run("lost-update:pessimistic")
    assert sound, data


def test_out_of_time_leaves_the_rest_without_a_verdict() -> None:
    figures = measure_race(RACES["lost-update:serializable"], timeout=0)
    assert (figures.verdict, figures.complete, figures.expected) == ("incomplete", False, True)


# The finder's figures: sound only if exactly the races of the seeded shop are confirmed


RACING = [unit for unit in UNITS if unit.racing]
TWINS = [unit for unit in UNITS if not unit.racing]


def searched(monkeypatch: pytest.MonkeyPatch, confirmed: list[Any], others: list[Any], *, rounds: int = 1) -> Section:
    """Return the section for a search that ends so; the shop's suite is not run."""
    verdicts = [(unit, "confirmed") for unit in confirmed] + [(unit, "not confirmed") for unit in others]
    candidates = [
        {
            "kind": unit.kind,
            "unit": unit.name,
            "verdict": verdict,
            "pairing": "the request twice",
            "schedules": 4,
            "seconds": 0.5,
        }
        for unit, verdict in verdicts
    ]

    def run_suite(folder: Path, *options: str, url: str) -> CompletedProcess[str]:
        for report in (option.partition("=")[2] for option in options if option.startswith("--race-report=")):
            (folder / report).write_text(json.dumps({"candidates": candidates}))
        return CompletedProcess(options, int("--race-report=races.json" in options), "", "")

    monkeypatch.setattr(find_races, "run_suite", run_suite)
    monkeypatch.setattr(
        find_races, "_cost", lambda folder, *options: find_races.Cost(wall=2.0 if options else 1.0, cpu=0.5)
    )
    monkeypatch.setattr(find_races, "database_url", lambda: "postgres:///shop")
    return find_races.SUITE.run(Options(rounds=rounds), say=lambda line: None)


def test_twelve_races_and_no_twin_are_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    section = searched(monkeypatch, RACING, TWINS, rounds=3)

    recording, candidates = section.tables
    assert section.sound
    assert recording.rows == (("the suite alone", 1.0, 0.5, 1.0, 1.0), ("recorded", 2.0, 0.5, 2.0, 1.0))
    assert len(section.data["alone"]) == len(section.data["recorded"]) == 3
    assert sum(row[2] for row in candidates.rows if isinstance(row[2], int)) == 24
    assert candidates.notes[0] == "12 of 24 requests and functions are confirmed to race."


@pytest.mark.parametrize(
    ("confirmed", "others"),
    [(RACING[1:], [*TWINS, RACING[0]]), ([*RACING, TWINS[0]], TWINS[1:])],
    ids=["a race is missed", "a twin is accused"],
)
def test_otherwise_it_is_not_sound(monkeypatch: pytest.MonkeyPatch, confirmed: list[Any], others: list[Any]) -> None:
    assert not searched(monkeypatch, confirmed, others).sound


def test_a_suite_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        find_races, "run_suite", lambda folder, *options, url: CompletedProcess(options, 2, "", "no such fixture")
    )
    monkeypatch.setattr(find_races, "database_url", lambda: "postgres:///shop")

    with pytest.raises(RuntimeError, match="no such fixture"):
        find_races.SUITE.run(Options(), say=lambda line: None)
