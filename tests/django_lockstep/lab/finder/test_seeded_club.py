"""The seeded club: twenty kinds of races, of which the finder must confirm most, and no race in the pages without."""

import ast
from functools import cached_property
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from django_lockstep.lab.finder.findings import Finding, Findings
from tests.support.seeded_shop import copy_shop, database_url, run_suite

KINDS = {
    "book": "both are told that they succeeded",
    "exchange": "what goes wrong is in another table",
    "register": "an error of a unique index, behind a form",
    "allocate": "a lock on another parent",
    "reserve": "an advisory lock of the session, released before the COMMIT",
    "ship": "a row that the caller has read",
    "hand_out": "a row that is read, used, and deleted",
    "take_out": "locks in the caller's order",
    "disable": "a whole row beside an UPDATE of another column",
    "finish": "a row that was deleted meanwhile",
    "report": "a task before the COMMIT",
    "sell": "a conditional UPDATE whose count is not read",
    "collect": "a column of an inherited table",
    "add_line": "rows that are added to what was summed",
    "newest": "a reader that looks twice",
    "start": "a lock that is released before the row is marked",
    "claim": "SKIP LOCKED with a fallback",
    "join": "a limit that is far away",
    "redeem": "two users",
    "dismiss": "the same request for another object",
}
"""The pages that have a race in ``racing``, or one of two that race with each other; what is special about each."""
MISSED = {"newest", "claim", "report"}
"""A unit that only reads is not recorded; rows that SKIP LOCKED passes over prove nothing; what has left the process
cannot be compared, and is a runtime check."""


class Search:
    """What one ``pytest --find-races`` says about the club."""

    def __init__(self, folder: Path, done: CompletedProcess[str]) -> None:
        self.folder = folder
        self.done = done

    @cached_property
    def findings(self) -> list[Finding]:
        return Findings.on(self.folder / "races.jsonl").in_order()

    def faults(self) -> dict[str, set[str]]:
        """Return the functions at fault in confirmed races, by module."""
        functions: dict[str, set[str]] = {}
        for finding in (finding for finding in self.findings if finding.verdict == "confirmed"):
            path, _, line = finding.fault.rpartition(":")
            functions.setdefault(Path(path).stem, set()).add(self._function(path, int(line)))
        return functions

    def _function(self, path: str, line: int) -> str:
        tree = ast.parse((self.folder / path).read_text("utf-8"))
        definitions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
        return next(node.name for node in definitions if node.lineno <= line <= (node.end_lineno or 0))


@pytest.fixture(scope="module")
def search(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Search:
    folder = copy_shop(tmp_path_factory.mktemp("club"), name="seeded_club")
    options = ("--find-races", "--race-processes=2", "--race-record=races.jsonl")
    return Search(folder, run_suite(folder, *options, url=database_url()))


def test_most_kinds_are_confirmed_at_the_page_that_races(search: Search) -> None:
    expected = KINDS.keys() - MISSED
    assert len(expected) == 17
    assert search.faults() == {"racing": expected}, search.done.stdout


def test_a_limit_is_lowered_and_the_report_says_so(search: Search) -> None:
    (finding,) = (it for it in search.findings if it.candidate.unit == "POST racing/join/<int:pk>/")
    assert (finding.against, finding.actors[-1]) == ("a lower limit", "MOST_GUESTS is 1, not 30")
    assert "against='a lower limit'" in finding.test_file
    assert "There is one seeded_club.Guest too many" in search.done.stdout


def test_the_kept_test_of_a_limit_fails_until_the_event_is_locked(search: Search) -> None:
    (finding,) = (finding for finding in search.findings if finding.against == "a lower limit")
    (search.folder / "seeded_club" / "suite" / "test_kept.py").write_text(finding.test_file)
    racing = search.folder / "seeded_club" / "racing.py"
    before, url = racing.read_text("utf-8"), database_url()
    broken = run_suite(search.folder, "seeded_club/suite/test_kept.py", url=url)
    racing.write_text(before.replace("(club.Event, pk=pk)", "(club.Event.objects.select_for_update(), pk=pk)"))
    mended = run_suite(search.folder, "seeded_club/suite/test_kept.py", url=url)
    assert (broken.returncode, mended.returncode) == (1, 0), broken.stdout + mended.stdout
