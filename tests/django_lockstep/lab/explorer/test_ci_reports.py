"""Results of checks as JUnit XML and SARIF."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from django_lockstep.lab.explorer import Scenario, explore
from django_lockstep.lab.explorer.render.reports import (
    CheckResult,
    CheckStep,
    Location,
    RaceReport,
    as_junit,
    as_sarif,
    check_results,
    format_of,
)
from tests.django_lockstep.lab.explorer import stories

RIGHT = CheckResult(name="queue:locked", ok=True, seconds=0.25)
WRONG = CheckResult(
    name="orders <pay>",
    ok=False,
    kind="lost update",
    message="A wrote what B had changed",
    location=Location(path="shop/views.py", line=12),
    details="step  A    B\n   1  \x1b[31mread & write",
    steps=(
        CheckStep(actor="A", text="SELECT", location=Location(path="shop/views.py", line=11)),
        CheckStep(actor="B", text="UPDATE", location=Location(path="shop/my views.py", line=30)),
        CheckStep(actor="A", text="UPDATE"),
    ),
    seconds=1.5,
)
MEANT = replace(WRONG, name="meant to break", ok=True)


def suite_of(*results: CheckResult) -> ET.Element:
    root = ET.fromstring(as_junit(results, suite="races"))  # noqa: S314 - written by ourselves
    (suite,) = root
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")
    return suite


def run_of(*results: CheckResult) -> dict[str, Any]:
    """Return the only run, after a look at what SARIF requires."""
    log = json.loads(as_sarif(results))
    (run,) = log["runs"]
    assert (log["version"], log["$schema"].rpartition("/")[2]) == ("2.1.0", "sarif-2.1.0.json")
    driver = run["tool"]["driver"]
    assert driver["name"]
    for result in run["results"]:
        assert result["message"]["text"]
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"none", "note", "warning", "error"}
    assert len({rule["id"] for rule in driver["rules"]}) == len(driver["rules"])
    return run  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("source", "location"),
    [
        ("shop/views.py:12", Location(path="shop/views.py", line=12)),
        ("C:\\shop.py:3", Location(path="C:\\shop.py", line=3)),
        ("", None),
        ("shop.py", None),
        ("shop.py:0", None),
    ],
)
def test_a_location_is_read_from_a_text(source: str, location: Location | None) -> None:
    assert Location.parse(source) == location


def test_each_check_is_a_test_case() -> None:
    suite = suite_of(RIGHT, WRONG, MEANT)
    first, second, third = suite

    assert suite.attrib == {
        "name": "races",
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "0",
        "time": "3.250",
    }
    assert first.attrib == {"classname": "races", "name": "queue:locked", "time": "0.250"}
    assert (second.attrib["name"], second.attrib["file"], second.attrib["line"]) == (
        "orders <pay>",
        "shop/views.py",
        "12",
    )
    assert [[child.tag for child in case] for case in (first, second, third)] == [[], ["failure"], ["system-out"]]
    (failure,) = second
    assert failure.attrib == {"type": "lost update", "message": "A wrote what B had changed"}
    assert failure.text == "step  A    B\n   1  \ufffd[31mread & write"


def test_each_check_with_something_to_report_is_a_result() -> None:
    run = run_of(RIGHT, WRONG, replace(WRONG, name="another"), MEANT, replace(WRONG, kind="deadlock"))

    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["lost-update", "deadlock"]
    assert [(result["ruleId"], result["level"]) for result in run["results"]] == [
        ("lost-update", "error"),
        ("lost-update", "error"),
        ("lost-update", "note"),
        ("deadlock", "error"),
    ]


def test_a_result_has_its_line_and_the_steps_of_each_actor() -> None:
    (result,) = run_of(WRONG)["results"]
    (flow,) = result["codeFlows"]
    first, second = flow["threadFlows"]

    assert result["message"]["text"] == "orders <pay>: A wrote what B had changed"
    assert result["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "shop/views.py", "uriBaseId": "%SRCROOT%"},
                "region": {"startLine": 12},
            }
        }
    ]
    assert (first["id"], [step["executionOrder"] for step in first["locations"]]) == ("A", [1, 3])
    (other,) = second["locations"]
    assert other["location"]["physicalLocation"]["artifactLocation"]["uri"] == "shop/my%20views.py"
    assert "physicalLocation" not in first["locations"][1]["location"]


def test_an_absolute_path_is_a_uri_of_its_own() -> None:
    (result,) = run_of(replace(WRONG, location=Location(path="/srv/shop.py", line=1)))["results"]

    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "file:///srv/shop.py"}


# Of races


def report(scenario: Scenario, *, as_expected: bool, **options: Any) -> RaceReport:
    return RaceReport(name="seat", exploration=explore(scenario, **options), as_expected=as_expected)


@pytest.mark.django_db(transaction=True)
def test_a_broken_race_is_reported_at_the_line_that_breaks_it() -> None:
    (result,) = check_results([report(stories.raising(stories.naive), as_expected=False)])

    assert (result.ok, result.kind) == (False, "lost update")
    assert result.message.startswith("lost update: B wrote price 110.00")
    assert result.location is not None
    assert result.location.path.endswith("stories.py")
    assert "update(price=value + 10)" in Path(result.location.path).read_text().splitlines()[result.location.line - 1]
    assert "WRONG" in result.details
    assert [step.actor for step in result.steps[:3]] == ["A", "A", "B"]


@pytest.mark.django_db(transaction=True)
def test_other_results_are_reported_where_they_are_not_as_expected() -> None:
    limited = report(stories.raising(stories.locked), as_expected=False, max_schedules=1)
    right, cut = check_results([report(stories.raising(stories.locked), as_expected=True), limited])

    assert (right.ok, right.kind) == (True, "")
    assert (cut.ok, cut.kind, cut.location) == (False, "incomplete", None)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("races.xml", "junit"),
        ("races.SARIF", "sarif"),
        ("races.html", "html"),
        ("race.svg", "svg"),
        ("races.json", "json"),
        ("races.txt", "text"),
        ("races", "text"),
    ],
)
def test_a_file_s_ending_asks_for_its_format(name: str, form: str) -> None:
    assert format_of(Path(name)) == form
    assert format_of(None) == "text"
