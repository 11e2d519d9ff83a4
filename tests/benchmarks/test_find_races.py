"""The finder's figures: sound only if exactly the races of the seeded shop are confirmed."""

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from benchmarks import find_races
from benchmarks.find_races import SUITE, Cost
from benchmarks.suite import Options, Section
from tests.testapps.seeded_shop.units import UNITS

RACING = [unit for unit in UNITS if unit.racing]
TWINS = [unit for unit in UNITS if not unit.racing]


def searched(
    monkeypatch: pytest.MonkeyPatch, confirmed: list[Any], others: list[Any], *, rounds: int = 1, missed_by_two: int = 0
) -> Section:
    """Return the section for a search that ends so, by two processes with so many less; the shop's suite is not run."""
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
            missed = missed_by_two if "--race-processes=2" in options else 0
            (folder / report).write_text(json.dumps({"candidates": candidates[missed:]}))
        return CompletedProcess(options, int("--race-report=races.json" in options), "", "")

    monkeypatch.setattr(find_races, "run_suite", run_suite)
    monkeypatch.setattr(find_races, "_cost", lambda folder, *options: Cost(wall=2.0 if options else 1.0, cpu=0.5))
    monkeypatch.setattr(find_races, "database_url", lambda: "postgres:///shop")
    return SUITE.run(Options(rounds=rounds), say=lambda line: None)


def test_twelve_races_and_no_twin_are_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    section = searched(monkeypatch, RACING, TWINS, rounds=3)

    recording, candidates, trials = section.tables
    assert section.sound
    assert recording.rows == (("the suite alone", 1.0, 0.5, 1.0, 1.0), ("recorded", 2.0, 0.5, 2.0, 1.0))
    assert len(section.data["alone"]) == len(section.data["recorded"]) == 3
    assert sum(row[2] for row in candidates.rows if isinstance(row[2], int)) == 24
    assert candidates.notes[0] == "12 of 24 requests and functions are confirmed to race."
    assert [row[:2] for row in trials.rows] == [(1, 12), (2, 12)]


@pytest.mark.parametrize(
    ("confirmed", "others"),
    [(RACING[1:], [*TWINS, RACING[0]]), ([*RACING, TWINS[0]], TWINS[1:])],
    ids=["a race is missed", "a twin is accused"],
)
def test_otherwise_it_is_not_sound(monkeypatch: pytest.MonkeyPatch, confirmed: list[Any], others: list[Any]) -> None:
    assert not searched(monkeypatch, confirmed, others).sound


def test_nor_if_two_processes_miss_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    section = searched(monkeypatch, RACING, TWINS, missed_by_two=1)

    assert not section.sound
    assert [row[:2] for row in section.tables[-1].rows] == [(1, 12), (2, 11)]


def test_a_suite_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        find_races, "run_suite", lambda folder, *options, url: CompletedProcess(options, 2, "", "no such fixture")
    )
    monkeypatch.setattr(find_races, "database_url", lambda: "postgres:///shop")

    with pytest.raises(RuntimeError, match="no such fixture"):
        SUITE.run(Options(), say=lambda line: None)
