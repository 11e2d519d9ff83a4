"""Other packages' code: what is not installed is named, and no table says whose code is broken."""

import json
from typing import Any

import pytest

from benchmarks import packages
from benchmarks.packages import SUITE
from benchmarks.packages.cases import CASES
from benchmarks.suite import Options, Section

ABSENT = sorted({case.package for case in CASES if not case.installed})
FOUND = {"name": "package:case", "schedules": 10, "seconds": 0.5, "steps": 8, "reason": "Schedule AB: wrong"}


def explored(monkeypatch: pytest.MonkeyPatch, *verdicts: str) -> Section:
    found: list[dict[str, Any]] = [{**FOUND, "verdict": verdict} for verdict in verdicts]
    monkeypatch.setattr(packages, "_explored", lambda *args, **kwargs: found)
    monkeypatch.setattr("benchmarks.packages.cases.Case.installed", True)
    only = tuple(case.name for case in CASES[: len(verdicts)])
    return SUITE.run(Options(only=only), say=lambda line: None)


def test_verdicts_are_counted_and_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    section = explored(monkeypatch, "broken", "holds")

    (table,) = section.tables
    assert table.notes == ("Verdicts: 1 broken, 1 holds.",)
    assert "broken" not in str(table.rows)
    assert "Schedule" not in json.dumps(section.data)
    assert section.sound


@pytest.mark.parametrize("verdict", ["nondeterministic", "vacuous", "stuck"])
def test_a_case_that_was_not_raced_is_not_sound(verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not explored(monkeypatch, verdict).sound


def test_packages_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.packages.cases.Case.installed", False)
    (table,) = SUITE.run(Options(), say=lambda line: None).tables

    assert set(table.notes[1:]) == {f"{case.package} is not installed." for case in CASES}


@pytest.mark.skipif(bool(ABSENT), reason=f"{', '.join(ABSENT)} not installed: see benchmarks/requirements.txt")
def test_every_case_is_raced(db: None) -> None:
    assert SUITE.run(Options(seconds=1), say=lambda line: None).sound
