"""Suppressed races in pyproject.toml."""

from pathlib import Path

import pytest

from django_lockstep.lab.finder.errors import FinderError
from django_lockstep.lab.finder.findings import Finding
from django_lockstep.lab.finder.report.files import write_reports
from django_lockstep.lab.finder.report.races import Suppression, read_suppressions, report_on
from tests.django_lockstep.lab.finder.test_findings import candidate, confirmed, findings


def written(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_each_names_a_site_and_a_reason(tmp_path: Path) -> None:
    written(
        tmp_path,
        '[[tool.lockstep.races]]\nsite = "a.py sell"\nreason = "one cashier"\n'
        '[[tool.lockstep.races]]\nsite = "b.py"\nreason = "a counter"\n',
    )

    assert read_suppressions(tmp_path) == [
        Suppression(site="a.py sell", reason="one cashier"),
        Suppression(site="b.py", reason="a counter"),
    ]


@pytest.mark.parametrize("text", ["", "[tool.other]\na = 1", "[tool.lockstep]\na = 1"])
def test_a_project_without_any(tmp_path: Path, text: str) -> None:
    assert read_suppressions(tmp_path) == read_suppressions(written(tmp_path, text)) == []


@pytest.mark.parametrize(
    "entry",
    [
        'site = "a.py"',
        'site = "a.py"\nreason = ""',
        'site = "a.py"\nreason = " "',
        'reason = "because"',
        "",
        "site = 1\nreason = 2",
    ],
)
def test_one_without_a_reason_is_refused(tmp_path: Path, entry: str) -> None:
    with pytest.raises(FinderError, match="must have site and reason, not {"):
        read_suppressions(written(tmp_path, f"[[tool.lockstep.races]]\n{entry}"))


def test_one_table_instead_of_several_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FinderError, match=r"must be tables \[\[tool.lockstep.races\]\]"):
        read_suppressions(written(tmp_path, '[tool.lockstep.races]\nsite = "a.py"\nreason = "b"'))


@pytest.mark.parametrize(
    ("site", "covers"),
    [
        ("box/office.py", True),
        ("box/office.py sell", True),
        ("a1b2", True),
        ("box/office.py refund", False),
        ("office.py", False),
        ("sell", False),
    ],
)
def test_which_candidates_it_covers(site: str, covers: bool) -> None:
    assert Suppression(site=site, reason="known").covers(candidate("a1b2")) is covers


def test_a_baseline_accepts_what_an_earlier_report_confirmed(tmp_path: Path) -> None:
    candidates = findings(tmp_path, "a1", "b2")
    candidates.add(confirmed("a1"))
    candidates.add(Finding(candidate="b2", verdict="not confirmed", reason="no"))
    assert report_on(candidates, [], root=tmp_path).exit_status == 1
    write_reports(report_on(candidates, [], root=tmp_path), tmp_path / "races.json", None)

    accepted = read_suppressions(tmp_path, tmp_path / "races.json")

    assert accepted == [Suppression(site="a1", reason="in the baseline races.json")]
    assert report_on(candidates, accepted, root=tmp_path).exit_status == 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"candidates": [1]}'])
def test_what_is_no_report_is_no_baseline(tmp_path: Path, text: str) -> None:
    (tmp_path / "races.json").write_text(text)

    with pytest.raises(FinderError, match="races.json is no report in JSON"):
        read_suppressions(tmp_path, tmp_path / "races.json")
