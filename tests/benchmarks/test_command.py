"""The command line, and the three forms of its results."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.command import main
from benchmarks.render import as_json, as_markdown, as_text, merge_parts
from benchmarks.suite import SUITES, FigureTable, Options, Section, load, select_names
from tests.support.pages import ROOT

TABLE = FigureTable(
    title="1 worker", columns=("contender", "ops/s", "ratio"), rows=(("a|b", 12345.6, 0.25), ("c", None, None))
)
MACHINE = {"cpus": 2}
WRONG = (
    *((option, 0) for option in ("--rows", "--rounds", "--seconds")),
    ("--workers", -1),
)


def section(name: str = "deposit") -> Section:
    return Section(suite=name, summary="What it is.", tables=(TABLE,), data={"x": 1}, sound=True)


def test_every_suite_keeps_to_the_contract() -> None:
    for name in SUITES:
        suite = load(name)
        assert suite.name == name
        assert suite.names()
        assert suite.seconds(Options()) > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("nosuch", "must be one of deposit, explore"),
        ("--only nobody-x", "matches none of"),
        ("--only strategy:naive-x", "matches none of"),
        *((f"{option} {value}", option) for option, value in WRONG),
    ],
)
def test_wrong_usage_is_named(arguments: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        sys.exit(main(arguments.split()))
    assert said in capsys.readouterr().err


def test_patterns_choose_names() -> None:
    names = ("strategy:naive", "strategy:optimistic", "account:deposit")
    assert select_names(names, ()) == names
    assert select_names(names, ("strategy:*", "account:d*")) == names
    assert select_names(names, ("*:naive",)) == ("strategy:naive",)


def test_json_has_a_schema_version_and_all_data() -> None:
    data = json.loads(as_json([section()], machine=MACHINE, command="x"))
    assert data["schema_version"] == 1
    assert data["suites"] == {"deposit": {"sound": True, "data": {"x": 1}}}
    assert (data["machine"], data["command"]) == (MACHINE, "x")


def test_it_measures_on_the_embedded_server_with_commits_that_do_not_wait(tmp_path: Path) -> None:
    others = {
        name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "DJANGO_SETTINGS_MODULE")
    }
    reported = "deposit --rows 1 --workers 1 --rounds 1 --seconds 1 --only pgbench:one-statement --no-durable"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *reported.split(), "--format", "json"],
        cwd=ROOT,
        env={**others, "BANK_PGDATA": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    machine = json.loads(done.stdout)["machine"]
    assert (machine["synchronous_commit"], machine["fsync"]) == ("off", "off")
    assert re.search(r"[1-9][\d,]*/s\s+correct", done.stderr)


@pytest.mark.parametrize("form", [as_text, as_markdown])
def test_tables_have_figures_and_say_how_to_repeat_them(form: Any) -> None:
    text = form([section()], machine=MACHINE, command="python -m benchmarks --rounds 1")
    assert "cpus 2." in text
    assert "```sh\npython -m benchmarks --rounds 1\n```" in text
    assert re.search(r"\| a\\\|b +\| +12,346 \| +0.25 \|\n\| c +\| +\| +\|", text)


def test_a_part_of_the_results_replaces_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    path.write_text(as_markdown([section(), section("explore")], machine={"run": "first"}, command="x"))
    new = merge_parts(as_markdown([section("explore")], machine={"run": "second"}, command="x"), path)
    assert (new.count("run first"), new.count("run second")) == (1, 1)
    assert new.index("## deposit") < new.index("run first") < new.index("## explore") < new.index("run second")
