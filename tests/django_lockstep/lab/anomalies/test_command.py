"""``manage.py anomalies``: options, formats, exit statuses."""

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_lockstep.lab.anomalies import access_patterns, published

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


def test_the_table_says_what_is_possible_and_what_prevents_it() -> None:
    shown = run(*SMALL)
    assert re.search(r"^P4 +POSSIBLE +waits$", shown, re.MULTILINE)
    assert re.search(r"^ +40001$", shown, re.MULTILINE)
    assert "All 2 results for which there are published ones agree" in " ".join(shown.split())
    assert "github.com/ept/hermitage" in shown


def test_json_has_a_schema_version_and_every_cell() -> None:
    data = json.loads(run(*SMALL, "--format", "json"))
    assert data["schema_version"] == 2
    first, second = data["cells"]
    assert (first["column"], first["verdict"], first["published"]) == ("read committed", "possible", "possible")
    assert first["run"]["steps"][0]["sql"].startswith("SELECT")
    assert (second["column"], second["verdict"], second["schedule"]) == ("repeatable read", "prevented", None)


def test_the_page_stands_alone_and_links_each_timeline() -> None:
    page = run(*SMALL, "--strategy", "naive_atomic", "--format", "html")
    assert not re.search(r"<(?:link|img|script)[^>]+(?:src|href)=", page)
    links = re.findall(r'href="#([^"]+)"', page)
    assert links == ["level-P4-read-committed", "strategy-P4-naive_atomic"]
    assert all(f'<details id="{link}">' in page for link in links)
    assert "<caption>" in page
    assert 'scope="row"' in page


def test_the_report_can_go_to_a_file(tmp_path: Path) -> None:
    assert run(*SMALL, "--format", "json", "--output", tmp_path / "found.json") == ""
    assert json.loads((tmp_path / "found.json").read_text())["database"] == "default"


def test_show_prints_the_simplest_run() -> None:
    shown = run("--show", "G2-item", "--level", "repeatable read")
    assert "G2-item at repeatable read" in shown
    assert re.search(r"^schedule [AB]+, WRONG$", shown, re.MULTILINE)
    assert "end: x = -20, y = -10" in shown


def test_show_also_shows_what_prevents_it() -> None:
    shown = run("--show", "P4", "--strategy", "optimistic")
    assert "prevented: waits, conflict" in shown
    assert "B raised StaleVersionError" in shown


def test_another_result_than_the_published_one_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "PUBLISHED", {**published.PUBLISHED, "read committed": frozenset()})
    out = StringIO()
    with pytest.raises(CommandError, match="Results differ from published ones in 1 of 2") as refused:
        call_command("anomalies", *SMALL, stdout=out, no_color=True)
    assert refused.value.returncode == 1
    assert "P4 at read committed is possible; the published result is prevented." in " ".join(out.getvalue().split())
    assert "POSSIBLE (!)" in " ".join(out.getvalue().split())


def test_what_was_not_explored_to_its_end_is_not_called_prevented() -> None:
    args = ("--anomaly", "P4", "--level", "repeatable read", "--max-schedules", "1")
    assert refusal(*args) == (1, "Results are incomplete in 1 of 1 cells")


def test_a_transaction_that_fails_for_another_reason_prevents_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(pattern: access_patterns.AccessPattern, pk: int, amount: int) -> None:
        pattern.items.get(pk=99)

    monkeypatch.setattr(access_patterns.PessimisticPattern, "add", fail, raising=False)
    out = StringIO()
    with pytest.raises(CommandError, match="Results are incomplete in"):
        call_command("anomalies", "--anomaly", "P4", "--strategy", "pessimistic", stdout=out, no_color=True)
    assert "P4 with pessimistic is incomplete: Transactions failed with DoesNotExist." in " ".join(
        out.getvalue().split()
    )


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--anomaly", "G9"], "anomaly must be one of G0"),
        (["--level", "chaos"], "level must be one of read"),
        (["--strategy", "hope"], "not 'hope'"),
        (["--database", "nowhere"], "--database must be one of default"),
        (["--max-schedules", "0"], "must be a positive integer, not 0"),
        (["--output", "/nowhere/report"], "no folder"),
        (["--show", "P4"], "one --level or one --strategy"),
        (["--show", "P4", "--level", "serializable", "--anomaly", "G0"], "names the anomaly itself"),
    ],
)
def test_wrong_usage_exits_with_2(args: list[str], complaint: str) -> None:
    status, said = refusal(*args)
    assert status == 2
    assert complaint in said
