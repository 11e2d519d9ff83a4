"""The fixture ``race``."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.outcomes import Failed
from django.db import transaction
from django.db.models import F

from django_lockstep.lab.pytest_plugin import RaceFixture, pytest_terminal_summary
from tests.django_lockstep.lab.explorer import stories
from tests.testapps.shop.models import Seat

ROOT = Path(__file__).resolve().parents[4]

pytestmark = pytest.mark.django_db(transaction=True)


def break_it(racing: RaceFixture) -> str:
    with pytest.raises(Failed) as failed:
        racing(stories.naive, stories.naive, set_up=stories.one_seat, invariant=stories.raised_by(10))
    return str(failed.value)


def test_what_breaks_fails_with_a_timeline_and_a_schedule_to_paste() -> None:
    said = break_it(RaceFixture())

    assert "lost update: " in said
    assert 'race.replay("AABBAB", ...)' in said


def test_it_begins_with_how_many_end_wrong_in_which_ways() -> None:
    first, way, *_ = break_it(RaceFixture()).splitlines()

    assert first == "The race is broken: 4 of 6 schedules end wrong, in 1 way:"
    assert way.startswith("  4 x Schedule AABBAB: The invariant does not hold; end: shop_seat: ")
    assert "price=110.00" in way


def test_without_a_set_up_every_schedule_begins_with_the_rows_of_the_test() -> None:
    pk = stories.one_seat()
    racing = RaceFixture()

    async def raise_it() -> None:
        await async_naive(pk)

    def is_raised() -> bool:
        return stories.raised_by(10)(pk)

    for actor, schedule in ((lambda: stories.naive(pk), "AABBAB"), (raise_it, "ABBA")):
        with pytest.raises(Failed, match="schedules end wrong"):
            racing(actor, actor, invariant=is_raised)
        with pytest.raises(Failed, match=f"schedule {schedule}, WRONG"):
            racing.replay(schedule, actor, actor, invariant=is_raised)
    found = racing(lambda: stories.locked(pk), lambda: stories.locked(pk), observe=lambda: Seat.objects.get().price)
    assert [outcome.end for outcome in found.outcomes] == ["120.00"]
    assert Seat.objects.get().price == 100


def test_actors_are_called_by_their_functions_where_they_differ() -> None:
    found = RaceFixture()(stories.locked, stories.computed, set_up=stories.one_seat)
    alike = RaceFixture()(stories.locked, stories.locked, set_up=stories.one_seat)
    mapped = RaceFixture()({"one": stories.locked, "other": stories.locked}, set_up=stories.one_seat)

    assert (found.actors, alike.actors, mapped.actors) == (("locked", "computed"), ("A", "B"), ("one", "other"))


def test_an_impossible_schedule_is_one_sentence() -> None:
    with pytest.raises(Failed, match="^Step 4 is A, which waits or is done; B could move$") as failed:
        RaceFixture().replay("AAAABBBB", *[stories.naive] * 2, set_up=stories.one_seat)

    assert failed.value.__context__ is None


def test_the_numbers_of_a_race_are_recorded() -> None:
    recorded: dict[str, object] = {}

    RaceFixture(record=recorded.__setitem__)(*[stories.locked] * 2, set_up=stories.one_seat)

    assert list(recorded) == ["race_verdict", "race_schedules", "race_outcomes", "race_seconds"]
    assert recorded["race_outcomes"] == 1


class Lines(list[str]):
    """A terminal's reporter that keeps what it is told."""

    def __init__(self, *properties: tuple[str, object]) -> None:
        self.stats = {"passed": [SimpleNamespace(nodeid="test_it", user_properties=list(properties))]}

    def section(self, title: str) -> None:
        self.append(title)

    write_line = section


@pytest.mark.parametrize(
    ("asked", "lines"), [(False, []), (True, ["races that passed", "test_it: holds, 6 schedules, 1 outcome, 0.5 s"])]
)
def test_races_that_passed_are_listed_where_asked_for(asked: bool, lines: list[str]) -> None:
    reporter = Lines(
        ("other", 1), ("race_verdict", "holds"), ("race_schedules", 6), ("race_outcomes", 1), ("race_seconds", 0.5)
    )
    config: Any = SimpleNamespace(getoption=lambda name: asked)

    pytest_terminal_summary(reporter, config)

    assert reporter == lines


def test_a_schedule_is_replayed() -> None:
    racing = RaceFixture()

    right = racing.replay("AAABBB", *[stories.naive] * 2, set_up=stories.one_seat, invariant=stories.raised_by(10))
    with pytest.raises(Failed, match="schedule AABBAB, WRONG"):
        racing.replay("AABBAB", *[stories.naive] * 2, set_up=stories.one_seat, invariant=stories.raised_by(10))

    assert right.holds


def test_what_was_not_explored_to_the_end_fails() -> None:
    with pytest.raises(Failed, match="incomplete"):
        RaceFixture(max_schedules=1)(stories.locked, stories.locked, set_up=stories.one_seat)


def test_a_directed_race_passes_where_nothing_was_found_and_does_not_say_that_it_holds() -> None:
    recorded: dict[str, object] = {}
    racing = RaceFixture(record=recorded.__setitem__)

    found = racing(stories.locked, stories.locked, set_up=stories.one_seat, directed=True)

    assert (found.verdict, found.ok, found.passed) == ("nothing found", False, True)
    assert recorded["race_verdict"] == "nothing found"


def test_a_directed_race_that_breaks_fails_with_a_timeline() -> None:
    with pytest.raises(Failed, match="lost update: ") as failed:
        RaceFixture()(*[stories.naive] * 2, set_up=stories.one_seat, directed=True, stop_on_first=True)

    assert "To replay: race.replay(" in str(failed.value)


def test_the_fixture_is_there(race: RaceFixture) -> None:
    found = race(stories.locked, stories.locked, set_up=stories.one_seat)
    again = race.replay(found.outcomes[0].schedule, *[stories.locked] * 2, set_up=stories.one_seat)

    assert (found.verdict, again.holds) == ("holds", True)


# How a failure is shown


@pytest.mark.parametrize(("form", "opening"), [("svg", "<svg "), ("html", "<!DOCTYPE html>")])
def test_a_picture_goes_into_a_file_that_the_failure_names(form: str, opening: str, tmp_path: Path) -> None:
    said = break_it(RaceFixture(timeline=form, folder=lambda: tmp_path / "new", name="test[a/b]"))

    (path,) = (tmp_path / "new").iterdir()
    assert path.name == f"test-a-b--1.{form}"
    assert f"Timeline: {path}" in said
    assert path.read_text().startswith(opening)


def test_a_second_failure_does_not_overwrite_the_first(tmp_path: Path) -> None:
    for _ in range(2):
        break_it(RaceFixture(timeline="svg", folder=lambda: tmp_path))

    assert sorted(path.name for path in tmp_path.iterdir()) == ["race-1.svg", "race-2.svg"]


def test_json_stands_in_the_failure() -> None:
    said = break_it(RaceFixture(timeline="json"))
    found, _ = json.JSONDecoder().raw_decode(said[said.index("{\n") :])

    assert found["race"]["failure"]["schedule"] == "AABBAB"


# Asynchronous actors


async def async_naive(pk: int) -> None:
    value = (await Seat.objects.aget(pk=pk)).price
    await Seat.objects.filter(pk=pk).aupdate(price=value + 10)


async def async_computed(pk: int) -> None:
    await Seat.objects.filter(pk=pk).aupdate(price=F("price") + 10)


class AsyncActor:
    async def __call__(self, pk: int) -> None:
        await async_computed(pk)


def test_asynchronous_actors_are_steered_statement_by_statement() -> None:
    with pytest.raises(Failed, match=r"lost update: A wrote price 110.00 computed from 100.00") as failed:
        RaceFixture()(async_naive, async_naive, set_up=stories.one_seat, invariant=stories.raised_by(10))

    assert 'race.replay("ABBA", ...)' in str(failed.value)


@pytest.mark.parametrize("actor", [stories.locked, async_computed, AsyncActor(), partial(async_computed)])
def test_what_holds_passes_and_answers_with_the_exploration(actor: Any) -> None:
    found = RaceFixture()(actor, stories.computed, set_up=stories.one_seat, invariant=stories.raised_by(10))

    assert found.verdict == "holds"


def test_a_transaction_of_an_asynchronous_actor_is_on_its_own_connection() -> None:
    from asgiref.sync import sync_to_async

    async def locking(pk: int) -> None:
        await sync_to_async(stories.locked)(pk)

    found = RaceFixture()(locking, locking, set_up=stories.one_seat, invariant=stories.raised_by(10))

    assert found.verdict == "holds"


# Where it cannot race


def test_without_a_mark_it_says_which_one_to_use(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(race): pass\n")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    plugins = ["-p", "pytest_django.plugin", "-p", "django_lockstep.lab.pytest_plugin", "--ds", "tests.settings"]
    command = [sys.executable, "-m", "pytest", *plugins, "--rootdir", str(tmp_path), "test_it.py"]

    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert "mark the test with @pytest.mark.django_db(transaction=True)" in done.stdout
    assert "pytest_plugin.py" not in done.stdout


@pytest.mark.django_db
def test_in_a_plain_test_it_says_what_to_do(race: RaceFixture) -> None:
    with pytest.raises(Failed, match=r"pytest.mark.django_db\(transaction=True\)"):
        race(stories.locked, stories.locked, set_up=stories.one_seat)


def test_in_an_open_transaction_it_says_so() -> None:
    with transaction.atomic(), pytest.raises(Failed, match="A transaction is open"):
        RaceFixture()(stories.locked, set_up=stories.one_seat)


BLOCK_DJANGO = """
import sys, importlib.abc
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"django", "asgiref", "psycopg"}:
            raise ImportError(f"{name} is not installed")
sys.meta_path.insert(0, Block())
import pytest
sys.exit(pytest.main(["-q", "-p", "django_lockstep.lab.pytest_plugin", *sys.argv[1:]]))
"""


def without_django(folder: Path, test: str) -> subprocess.CompletedProcess[str]:
    """Run a test file in a project that has neither Django nor its pytest plugin."""
    (folder / "test_it.py").write_text(test)
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", BLOCK_DJANGO, "--rootdir", str(folder), "test_it.py"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_it_does_nothing_without_django(tmp_path: Path) -> None:
    done = without_django(tmp_path, "def test_it(): assert 1 + 1 == 2\n")

    assert done.returncode == 0, done.stdout + done.stderr


def test_asked_for_without_pytest_django_it_says_what_is_missing(tmp_path: Path) -> None:
    done = without_django(tmp_path, "def test_it(race): pass\n")

    assert done.returncode == 1
    assert "needs pytest-django" in done.stdout
