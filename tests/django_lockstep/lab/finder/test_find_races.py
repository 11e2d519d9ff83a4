"""``pytest --find-races`` on the seeded shop: from the recording to test files that fail while the races are there."""

import re
import signal
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from django_lockstep.lab.finder.findings import Finding, Findings, findings_path
from tests.support.seeded_shop import copy_shop, database_url, run_suite, start_suite
from tests.testapps.seeded_shop.units import UNITS

RACING = {unit.name for unit in UNITS if unit.racing}
RECORD = "races.jsonl"
FEW = "-k=CouponTests or ArticleTests or BookingTests or WishListTests"
"""Of the suite as much as a search needs in whose middle something happens."""


@dataclass(frozen=True, slots=True)
class Search:
    """What one ``pytest --find-races`` has left behind."""

    folder: Path
    url: str
    done: CompletedProcess[str]

    def run(self, *options: str) -> CompletedProcess[str]:
        return run_suite(self.folder, *options, url=self.url)

    @property
    def recording(self) -> Path:
        return self.folder / RECORD

    def findings(self) -> list[Finding]:
        return Findings.on(self.recording).in_order()

    def confirmed(self) -> list[Finding]:
        return [finding for finding in self.findings() if finding.verdict == "confirmed"]


@pytest.fixture(scope="module")
def search(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Search:
    folder, url = copy_shop(tmp_path_factory.mktemp("shop")), database_url()
    done = run_suite(folder, "--find-races", "--race-processes=2", "--race-record", RECORD, url=url)
    return Search(folder, url, done)


def outcomes(printed: str) -> list[str]:
    return re.findall(r"=+ (\d+ .*) in [\d.]+s.*=+", printed)


def test_the_suites_own_result_is_as_without_and_exactly_the_racing_units_are_confirmed(search: Search) -> None:
    assert outcomes(search.done.stdout) == ["54 passed"]
    assert {finding.candidate.unit for finding in search.confirmed()} == RACING, search.done.stdout
    assert search.done.returncode == 1


def test_each_candidate_has_a_verdict_and_each_confirmed_one_what_shows_it(search: Search) -> None:
    findings = Findings.on(search.recording)
    assert {finding.candidate.id for finding in findings.in_order() if finding.reason} == findings.candidates.keys()
    for finding in search.confirmed():
        candidate = finding.candidate
        shown = (finding.schedule, finding.differences, finding.consequence, finding.timeline, finding.test_file)
        assert all(shown), candidate.unit
        assert f"{candidate.kind} {candidate.id} " in search.done.stdout


TWIN = """
from django_lockstep.lab.finder.confirm.witnesses import raced
from seeded_shop.suite import test_office, test_services

test_correct = raced(test_office.CorrectArticleTests, "test_views_are_counted")
test_withdraw = raced(
    test_services.test_money_is_withdrawn, call="seeded_shop.correct.services.withdraw"
)
test_not_reached = raced(test_office.CorrectArticleTests, "test_views_are_counted", number=7)
"""


def test_the_test_files_fail_and_those_of_twins_pass(search: Search) -> None:
    suite = search.folder / "seeded_shop" / "suite"
    written = {}
    for finding in search.confirmed():
        path = written[finding.candidate.unit] = suite / f"test_race_{finding.candidate.id}.py"
        path.write_text(finding.test_file)
    (suite / "test_twins.py").write_text(TWIN)
    try:
        done = search.run("-rA", *(str(path) for path in suite.glob("test_race_*.py")), str(suite / "test_twins.py"))
    finally:
        for path in (*suite.glob("test_race_*.py"), suite / "test_twins.py"):
            path.unlink()

    for unit, path in written.items():
        assert f"FAILED seeded_shop/suite/{path.name}" in done.stdout, (unit, done.stdout)
    assert "ERROR" not in done.stdout
    assert "PASSED seeded_shop/suite/test_twins.py::test_correct" in done.stdout, done.stdout


def test_a_second_session_tries_nothing_again(search: Search) -> None:
    before = findings_path(search.recording).read_text()
    done = search.run("--race-confirm", RECORD)

    assert done.returncode == 1
    assert outcomes(done.stdout) == ["54 deselected"]
    assert f"12 races; {len(search.findings())} candidates: " in done.stdout
    assert findings_path(search.recording).read_text() == before


def test_a_race_that_is_accepted_is_none_to_fail_for(search: Search) -> None:
    accepted = search.folder / "pyproject.toml"
    site = 'site = "seeded_shop/racing/views.py read_article"'
    accepted.write_text(f'[[tool.lockstep.races]]\n{site}\nreason = "an approximate counter"')
    done = search.run("--find-races", "--race-record", "accepted.jsonl", "-k", "ArticleTests")
    accepted.unlink()

    assert done.returncode == 0, done.stdout
    assert "1. suppressed: racing.Article ends with views 42 instead of 43." in done.stdout


def test_an_interrupted_search_keeps_what_is_known(search: Search) -> None:
    record = search.folder / "interrupted.jsonl"
    options = ("--find-races", FEW, "--race-processes=2", "--race-record", record.name)
    with start_suite(search.folder, *options, url=search.url) as process:
        assert process.stdout
        # Shown as soon as it is known; there are more to come.
        assert any(line.startswith("confirmed: ") for line in process.stdout)
        process.send_signal(signal.SIGINT)
        printed = process.stdout.read()

    assert process.returncode == pytest.ExitCode.INTERRUPTED, printed
    assert f"Interrupted; --race-confirm={record} goes on from here" in printed
    findings = Findings.on(record)
    assert 0 < len(findings.in_order()) < len(findings.candidates)
    assert "1. CONFIRMED: " in printed
