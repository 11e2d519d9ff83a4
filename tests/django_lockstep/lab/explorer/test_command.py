"""``manage.py explore``."""

import json
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from accounts.races.ready_made import RACES
from django_lockstep.lab.explorer import Scenario
from tests.django_lockstep.lab.explorer import stories
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)

NAIVE = stories.raising(stories.naive)
LOCKED = stories.raising(stories.locked)
COPIES = Scenario(set_up=stories.one_seat, actors=[stories.locked] * 2)
TRANSFERS = stories.opposite_transfers()
HERE = "tests.django_lockstep.lab.explorer.test_command"


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def run(*args: str, **options: Any) -> str:
    out = options.pop("stdout", StringIO())
    call_command("explore", *args, stdout=out, **options)
    return str(out.getvalue())


def test_a_race_that_has_to_break_and_does_is_fine() -> None:
    assert "lost-update:naive: broken" in (shown := run("lost-update:naive"))
    assert "lost update: " in shown


def test_own_scenarios_have_to_hold() -> None:
    assert "LOCKED: holds" in run(f"{HERE}.LOCKED")
    with pytest.raises(CommandError, match="Not as expected") as refused:
        run(f"{HERE}.NAIVE")
    assert refused.value.returncode == 1


def test_a_race_that_has_to_break_and_does_not_is_not_fine() -> None:
    why = "Not as expected: lost-update:naive: 1 schedule ended right; at least"
    with pytest.raises(CommandError, match=why) as refused:
        run("lost-update:naive", "--max-schedules", "1", "--format", "json")
    assert refused.value.returncode == 1


def test_one_schedule_is_replayed() -> None:
    assert "schedule AAABBB, right" in run(f"{HERE}.NAIVE", "--schedule", "AAABBB")
    with pytest.raises(CommandError, match="ended wrong"):
        run(f"{HERE}.NAIVE", "--schedule", "AABBAB")


def test_json_has_each_exploration_by_name() -> None:
    report = json.loads(run("queue:unlocked", "--format", "json"))["queue:unlocked"]
    assert report["verdict"] == "broken"
    assert report["failure"]["explanation"].startswith("stale check: ")


def test_a_directed_search_is_as_expected_where_it_finds_nothing_wrong() -> None:
    assert "LOCKED: nothing found (" in run(f"{HERE}.LOCKED", "--directed")
    assert "lost-update:naive: broken" in run("lost-update:naive", "--directed")
    with pytest.raises(CommandError, match="Not as expected") as refused:
        run(f"{HERE}.NAIVE", "--directed", "--format", "json", stdout=(shown := StringIO()))
    assert refused.value.returncode == 1
    assert json.loads(shown.getvalue())[f"{HERE}.NAIVE"]["directed"] is True


def test_a_page_says_that_nothing_was_found() -> None:
    page = run(f"{HERE}.LOCKED", "--directed", "--format", "html")

    assert '<span class="verdict nothing-found">nothing found</span>' in page
    assert "not as expected" not in page


def test_ready_made_races_and_ones_own_are_listed(settings: Any) -> None:
    assert "write-skew:unlocked" in run("--list")
    settings.LOCKSTEP_LAB_RACES = [f"{HERE}.LOCKED"]
    assert run("--list").split() == [f"{HERE}.LOCKED"]


# Pictures and pages


def test_svg_draws_the_failure() -> None:
    drawn = run("lost-update:naive", "--format", "svg")
    assert ET.fromstring(drawn).get("role") == "img"  # noqa: S314 - drawn by ourselves
    assert "here it breaks: lost update" in drawn


@pytest.mark.parametrize("form", ["svg", "html"])
def test_a_right_run_is_drawn_too(form: str) -> None:
    assert "Schedule AAABBB: right" in run(f"{HERE}.NAIVE", "--schedule", "AAABBB", "--format", form)
    assert ": right" in run(f"{HERE}.LOCKED", "--format", form)


def test_html_is_one_page_that_needs_nothing_from_outside(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    run("lost-update:naive", "transfers:unordered", "--format", "html", "--output", str(page))
    text = page.read_text()

    assert text.count("<svg") >= 3, "the failure, and other outcomes"
    assert text.count("</section>") == 2
    assert "The same as text" in text
    assert [text.count(f'<ul class="tree" dir="ltr" aria-labelledby="tree{race}">') for race in (1, 2)] == [1, 1]
    assert not [word for word in ("<script", "<link", "src=", "@import", "url(http") if word in text]


def test_the_ending_of_the_file_chooses_the_format(tmp_path: Path) -> None:
    run("lost-update:naive", "--output", str(tmp_path / "races.sarif"))
    (result,) = json.loads((tmp_path / "races.sarif").read_text())["runs"][0]["results"]

    assert (result["ruleId"], result["level"]) == ("lost-update", "note")


@pytest.mark.parametrize("form", ["text", "json", "html", "svg", "junit", "sarif"])
def test_every_format_goes_into_a_file(form: str, tmp_path: Path) -> None:
    assert run(f"{HERE}.LOCKED", "--format", form, "--output", str(tmp_path / "out")) == ""
    assert (tmp_path / "out").read_text().strip()


# On which database


@pytest.fixture
def seat(no_tests: None) -> Seat:
    """A row of the project's own database, where no tests run."""
    return Seat.objects.create(price=4711)


def test_it_runs_on_a_scratch_database(seat: Seat) -> None:
    with pytest.raises(CommandError, match="Not as expected"):
        run(f"{HERE}.NAIVE", "--format", "json", stdout=(shown := StringIO()))
    assert "broken" in shown.getvalue()
    assert "4711" not in shown.getvalue()
    assert list(Seat.objects.all()) == [seat]


def test_any_user_model_will_do(no_tests: None) -> None:
    User.objects.create_user("ada")
    assert "get-or-create:unique: holds (6 schedules" in run("get-or-create:unique")


def test_a_database_of_the_projects_has_to_be_confirmed(seat: Seat) -> None:
    with pytest.raises(CommandError, match="neither a test database nor a scratch database") as refused:
        run(f"{HERE}.LOCKED", "--database", "default")
    assert refused.value.returncode == 2
    assert "holds" in run(f"{HERE}.LOCKED", "--database", "default", "--yes-this-database-is-mine")
    assert list(Seat.objects.all()) == [seat]


# More actors


def test_copies_of_an_actor_can_be_more() -> None:
    report = json.loads(run(f"{HERE}.COPIES", "--actors", "3", "--format", "json"))
    assert report[f"{HERE}.COPIES"]["actors"] == ["A", "B", "C"]


# One of each kind, of which the approaches have one set-up.
@pytest.mark.parametrize("name", {name.partition(":")[0]: name for name, race in RACES.items() if race.many}.values())
def test_one_after_the_other_three_actors_of_ready_made_races_are_right(name: str) -> None:
    assert ", right" in run(name, "--actors", "3", "--schedule", "")


# Progress


def test_progress_is_said_on_a_terminal_and_only_there() -> None:
    terminal, pipe = Terminal(), StringIO()
    for stderr in (terminal, pipe):
        run(f"{HERE}.LOCKED", stderr=stderr)
    assert f"1/1 {HERE}.LOCKED: 1 schedule" in terminal.getvalue()
    assert pipe.getvalue() == ""


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["nothing"], "neither a registered scenario"),
        ([f"{HERE}.HERE"], "not a Scenario"),
        (["--schedule", "AB"], "exactly one"),
        (["--spec", "a.spec"], "exactly one"),
        ([f"{HERE}.NAIVE", "--schedule", "X"], "has 'X'"),
        (["--format", "svg"], "--format svg draws one race"),
        ([f"{HERE}.TRANSFERS", "--actors", "3"], "different roles"),
        ([f"{HERE}.COPIES", "--actors", "1"], "1 are too few"),
        ([f"{HERE}.COPIES", "--actors", "27"], "1 to 26 actors, not 27"),
        ([f"{HERE}.LOCKED", "--output", "/nowhere/at/all.txt"], "there is no folder"),
        ([f"{HERE}.LOCKED", "--format", "html", "--output", "."], "is a folder"),
        ([f"{HERE}.LOCKED", "--database", "other"], "--database must be one of"),
        ([f"{HERE}.LOCKED", "--yes-this-database-is-mine"], "needs --database"),
        ([f"{HERE}.LOCKED", "--directed", "--reduction", "none"], "cannot be combined"),
        ([f"{HERE}.LOCKED", "--processes", "2", "--schedule", "AB"], "--processes explores, and --schedule runs one"),
        ([f"{HERE}.LOCKED", "--processes", "2", "--database", "default"], "--processes needs a scratch database"),
        ([f"{HERE}.LOCKED", "--cluster", "tcp://x:1", "--schedule", "AB"], "--cluster explores, and --schedule runs"),
    ],
)
def test_wrong_usage_exits_with_2(args: list[str], complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint) as refused:
        run(*args)
    assert refused.value.returncode == 2
