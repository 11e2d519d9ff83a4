"""The fixture ``race``."""

import asyncio
import inspect
import logging
import os
import re
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.outcomes import Failed
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


def sold_once(pk: int) -> None:
    assert stories.price(pk) == 120, "the seat was sold for too little"


@pytest.mark.parametrize(
    ("invariant", "what"),
    [
        (
            stories.raised_by(10),
            "lost update: B wrote price 110.00 computed from 100.00, which A had changed to 110.00",
        ),
        (sold_once, "the seat was sold for too little (lost update)"),
        (None, "shop_seat: price 110.00 instead of 120.00, version 2 instead of 3 (lost update)"),
    ],
)
def test_it_begins_with_what_is_wrong_in_how_many_schedules_and_then_draws_it(invariant: Any, what: str) -> None:
    with pytest.raises(Failed) as failed:
        RaceFixture()(stories.naive, stories.naive, set_up=stories.one_seat, invariant=invariant)
    first, empty, title, *_ = str(failed.value).splitlines()

    assert first.startswith(f"The race is broken: 4 of 6 schedules end wrong, in 1 way: {what}")
    assert (empty, title) == ("", "schedule AABBAB, WRONG")
    assert 'race.replay("AABBAB", ...)' in str(failed.value)


def test_several_ways_are_listed() -> None:
    with pytest.raises(Failed) as failed:
        RaceFixture()(
            stories.naive,
            lambda pk: Seat.objects.filter(pk=pk).update(price=stories.price(pk) * 3),
            set_up=stories.one_seat,
        )
    first, *ways = str(failed.value).partition("\n\n")[0].splitlines()

    assert "3 of 5 schedules end wrong, in 2 ways: shop_seat: price" in first
    assert [way.partition(":")[0].split()[:3] for way in ways] == [["2", "x", "Schedule"], ["1", "x", "Schedule"]]


@pytest.mark.parametrize(("actor", "records"), [(stories.naive, ["selling"] * 2), (stories.locked, [])])
def test_captured_logs_are_those_of_the_schedule_that_is_shown(
    actor: stories.Actor, records: list[str], caplog: pytest.LogCaptureFixture, pytestconfig: pytest.Config
) -> None:
    def sell(pk: int) -> None:
        print("printing")  # noqa: T201
        logging.getLogger("shop").warning("selling")
        actor(pk)

    logging.getLogger("shop").warning("opening")
    print("open")  # noqa: T201
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with suppress(Failed):
        RaceFixture(capture=capture)(sell, sell, set_up=stories.one_seat, invariant=stories.raised_by(10))

    assert capture is not None
    assert capture.read_global_capture().out.split() == ["open", *["printing"] * len(records)]
    assert caplog.messages == ["opening", *records]
    assert caplog.text.count("selling") == len(records)


def test_github_shows_the_failure_at_the_line_that_breaks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: dict[str, Any] = {}
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    break_it(RaceFixture(record=recorded.__setitem__, name="test_sale"))
    reporter = Lines()
    reporter.stats = {"failed": [SimpleNamespace(nodeid="test_sale", user_properties=list(recorded.items()))]}

    config: Any = SimpleNamespace(getoption=lambda name: False)
    pytest_terminal_summary(reporter, config)

    (command,) = reporter
    assert re.match(
        r"::error file=tests/django_lockstep/lab/explorer/stories.py,line=\d+,title=test_sale%3A lost update::"
        "lost update: B wrote price 110.00",
        command,
    )


def test_ci_keeps_a_page_of_each_failure_beside_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    said = break_it(RaceFixture(page=True, folder=lambda: tmp_path))
    monkeypatch.setenv("CI", "true")
    racing = request.getfixturevalue("race")

    assert "schedule AABBAB, WRONG" in said
    assert f"Timeline: {tmp_path / 'race-1.html'}" in said
    assert (tmp_path / "race-1.html").read_text().startswith("<!DOCTYPE html>")
    assert (racing.page, racing.folder()) == (True, request.config.rootpath / "race-reports")


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
    result = racing(lambda: stories.locked(pk), lambda: stories.locked(pk), observe=lambda: Seat.objects.get().price)
    assert [outcome.end for outcome in result.outcomes] == ["120.00"]
    assert Seat.objects.get().price == 100


def test_actors_are_called_by_their_functions_where_they_differ() -> None:
    result = RaceFixture()(stories.locked, stories.computed, set_up=stories.one_seat)
    alike = RaceFixture()(stories.locked, stories.locked, set_up=stories.one_seat)
    mapped = RaceFixture()({"one": stories.locked, "other": stories.locked}, set_up=stories.one_seat)

    assert (result.actors, alike.actors, mapped.actors) == (("locked", "computed"), ("A", "B"), ("one", "other"))


def test_an_impossible_schedule_is_one_sentence() -> None:
    with pytest.raises(Failed, match="^Step 4 is A, which waits or is done; B could move$") as failed:
        RaceFixture().replay("AAAABBBB", *[stories.naive] * 2, set_up=stories.one_seat)

    assert failed.value.__context__ is None


def test_an_argument_that_there_is_not_is_named() -> None:
    with pytest.raises(TypeError, match=r"race\(\) has no argument setup"):
        RaceFixture()(stories.naive, stories.naive, setup=stories.one_seat)


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
    ("shows_passed", "lines"),
    [(False, []), (True, ["races that passed", "test_it: holds, 6 schedules, 1 outcome, 0.5 s"])],
)
def test_races_that_passed_are_listed_where_asked_for(shows_passed: bool, lines: list[str]) -> None:
    reporter = Lines(
        ("other", 1), ("race_verdict", "holds"), ("race_schedules", 6), ("race_outcomes", 1), ("race_seconds", 0.5)
    )
    config: Any = SimpleNamespace(getoption=lambda name: shows_passed)

    pytest_terminal_summary(reporter, config)

    assert reporter == lines


def test_what_was_not_explored_to_the_end_fails() -> None:
    with pytest.raises(Failed, match="incomplete"):
        RaceFixture(max_schedules=1)(stories.locked, stories.locked, set_up=stories.one_seat)


def test_a_directed_race_passes_where_nothing_was_found_and_does_not_say_that_it_holds() -> None:
    recorded: dict[str, object] = {}
    racing = RaceFixture(record=recorded.__setitem__)

    result = racing(stories.locked, stories.locked, set_up=stories.one_seat, directed=True)

    assert (result.verdict, result.ok, result.passed) == ("nothing found", False, True)
    assert recorded["race_verdict"] == "nothing found"


def test_the_fixture_is_there(race: RaceFixture) -> None:
    result = race(stories.locked, stories.locked, set_up=stories.one_seat)
    again = race.replay(result.outcomes[0].schedule, *[stories.locked] * 2, set_up=stories.one_seat)

    assert (result.verdict, again.holds) == ("holds", True)


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


# Asynchronous actors


async def async_naive(pk: int) -> None:
    value = (await Seat.objects.aget(pk=pk)).price
    await Seat.objects.filter(pk=pk).aupdate(price=value + 10)


async def async_computed(pk: int) -> None:
    await Seat.objects.filter(pk=pk).aupdate(price=F("price") + 10)


async def count_and_raise(pk: int) -> None:
    await asyncio.gather(Seat.objects.acount(), async_computed(pk))


def test_tasks_at_the_same_time_have_no_lines_of_each_other() -> None:
    steps = RaceFixture().replay("AABB", count_and_raise, count_and_raise, set_up=stories.one_seat).steps
    lines = {step.sql.split()[0]: step.source.rpartition(":")[2] for step in steps}

    assert lines == {"SELECT": "", "UPDATE": str(inspect.getsourcelines(async_computed)[1] + 1)}


class AsyncActor:
    async def __call__(self, pk: int) -> None:
        await async_computed(pk)


def test_asynchronous_actors_are_steered_statement_by_statement() -> None:
    with pytest.raises(Failed, match=r"lost update: A wrote price 110.00 computed from 100.00") as failed:
        RaceFixture()(async_naive, async_naive, set_up=stories.one_seat, invariant=stories.raised_by(10))

    assert 'race.replay("ABBA", ...)' in str(failed.value)


@pytest.mark.parametrize("actor", [stories.locked, async_computed, AsyncActor(), partial(async_computed)])
def test_what_holds_passes_and_answers_with_the_exploration(actor: Any) -> None:
    result = RaceFixture()(actor, stories.computed, set_up=stories.one_seat, invariant=stories.raised_by(10))

    assert result.verdict == "holds"


def test_a_transaction_of_an_asynchronous_actor_is_on_its_own_connection() -> None:
    from asgiref.sync import sync_to_async

    async def locking(pk: int) -> None:
        await sync_to_async(stories.locked)(pk)

    result = RaceFixture()(locking, locking, set_up=stories.one_seat, invariant=stories.raised_by(10))

    assert result.verdict == "holds"


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


def test_without_django_it_does_nothing_and_says_what_is_missing_where_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(): pass\ndef test_race(race): pass\n")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", BLOCK_DJANGO, "--rootdir", str(tmp_path), "test_it.py"]

    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert "1 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "needs pytest-django" in done.stdout
