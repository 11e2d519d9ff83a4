"""What the server at hand allows, compared with what the literature says."""

import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_lockstep.lab import anomalies
from django_lockstep.lab.anomalies import ANOMALIES, LEVELS
from django_lockstep.lab.pytest_plugin import RaceFixture
from django_lockstep.lab.races import replay_test

pytestmark = pytest.mark.django_db(transaction=True)

SMALL = ("--anomaly", "P4", "--level", "read committed", "--level", "repeatable read")


def run(*args: Any) -> str:
    out = StringIO()
    call_command("anomalies", *args, stdout=out, no_color=True)
    return out.getvalue()


def refusal(*args: Any) -> tuple[int, str]:
    with pytest.raises(CommandError) as refused:
        run(*args)
    return refused.value.returncode, str(refused.value)


def test_the_command_explores_all_of_them() -> None:
    text = run()
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert len(ANOMALIES) * len(LEVELS) == 30
    assert "30 of 30 as published" in " ".join(rows)
    assert "G0 waits waits, 40001 waits, 40001 dirty write" in rows
    assert "G1a snapshots snapshots snapshots aborted read" in rows
    assert any(row.startswith("G2 POSSIBLE POSSIBLE 40001 ") for row in rows)


def test_the_table_says_what_is_possible_and_what_prevents_it() -> None:
    text = run(*SMALL)
    assert re.search(r"^P4 +POSSIBLE +waits, 40001 +lost update$", text, re.MULTILINE)
    assert "2 of 2 as published" in " ".join(text.split())
    assert "github.com/ept/hermitage" in text


def test_the_report_can_go_to_a_file(tmp_path: Path) -> None:
    assert run(*SMALL, "--output", tmp_path / "report.txt") == ""
    assert "2 of 2 as published" in (tmp_path / "report.txt").read_text()


def test_another_result_than_the_published_one_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    # In place: the command has imported it.
    published = {**anomalies.POSSIBLE, "read committed": frozenset[str]()}
    monkeypatch.setattr("django_lockstep.lab.management.commands.anomalies.POSSIBLE", published)
    assert refusal(*SMALL) == (1, "Not as published: P4 at read committed is possible")


def test_a_transaction_that_fails_for_another_reason_prevents_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anomalies, "read", lambda *pks: [])  # so that its first element raises IndexError
    assert refusal(*SMALL[:4]) == (1, "Not as published: P4 at read committed is incomplete")


def test_a_schedule_is_a_test_in_any_project(race: RaceFixture) -> None:
    module: dict[str, Any] = {}
    exec(replay_test("anomaly:P4:read-committed", "ABBBAA"), module)  # noqa: S102 - as pytest would import it
    with pytest.raises(pytest.fail.Exception, match="P4, lost update"):
        module["test_ABBBAA"](race)


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--anomaly", "G9"], "invalid choice: 'G9'"),
        (["--level", "chaos"], "invalid choice: 'chaos'"),
        (["--output", "/nowhere/report"], "no folder"),
    ],
)
def test_wrong_usage(args: list[str], complaint: str) -> None:
    assert complaint in refusal(*args)[1]
