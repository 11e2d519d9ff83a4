"""One race explored by several processes: the same result as by one, and nothing left behind."""

import multiprocessing.forkserver
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from _pytest.outcomes import Failed
from django.core.management import call_command
from django.db import connection
from django.db.models import F

from django_lockstep.lab.explorer import Exploration, NotExplorable, Scenario, WorkerDied, explore
from django_lockstep.lab.explorer.tables.databases import SCRATCH_PREFIX
from django_lockstep.lab.explorer.tables.scratch import _project, scratch_databases
from django_lockstep.lab.pytest_plugin import RaceFixture
from django_lockstep.locking import isolated_transaction
from tests.django_lockstep.lab.explorer import stories
from tests.django_lockstep.lab.explorer.test_loops import finish, poll
from tests.support.sessions import PATIENCE, query, until
from tests.testapps.shop.models import Seat

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_tests", "workers_at_once")]

_FILE = "LOCKSTEP_TEST_FILE"
"""The environment variable that names a file to the workers."""


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []
    assert copies() == []


def copies() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", [f"{_project(connection)}%run%"])
        return [name for (name,) in cursor.fetchall()]


def raised_twice(pk: int) -> bool:
    return stories.price(pk) == 120


def in_a_worker() -> bool:
    return multiprocessing.parent_process() is not None


def the_file() -> Path:
    return Path(os.environ[_FILE])


def dies_while_the_file_is_there(pk: int) -> None:
    if in_a_worker() and the_file().exists():
        if the_file().read_text() == "once":
            the_file().unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    stories.naive(pk)


def mistaken_in_a_worker(pk: int) -> bool:
    if in_a_worker():
        raise LookupError("no such seat")
    return True


def stuck_in_a_worker(pk: int) -> None:
    stories.naive(pk)
    if in_a_worker():
        query("SELECT 1 FROM pg_sleep(60)")


def named(pk: int) -> None:
    Seat.objects.filter(pk=pk).update(guest=os.urandom(8).hex())


def seats(fixture: object = None) -> str:
    return f"{Seat.objects.count()} seat"


def raises_the_first(pks: list[int]) -> None:
    Seat.objects.filter(pk=pks[0]).update(price=F("price") + 10)


def raises_the_second(pks: list[int]) -> None:
    Seat.objects.filter(pk=pks[1]).update(price=F("price") + 10)


def reads_more_once_the_first_is_raised(pks: list[int]) -> int:
    with isolated_transaction(isolation_level="repeatable read"):
        seen = int(stories.price(pks[0]))
        return seen if seen == 100 else 1000 * seen + int(stories.price(pks[1]))


NAIVE = Scenario(set_up=stories.one_seat, actors=[stories.naive] * 2, invariant=raised_twice)


def explored(scenario: Scenario, **options: Any) -> Exploration:
    with scratch_databases():
        return explore(scenario, **options)


def facts(result: Exploration) -> dict[str, Any]:
    """Return what does not depend on the order in which schedules were run."""
    kept = {name: value for name, value in result.to_dict().items() if name not in ("seconds", "redundant", "failure")}
    return {**kept, "failure": result.failure and (result.failure.schedule, result.failure.reason)}


# The same result


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(set_up=stories.one_seat, actors=[stories.naive, stories.computed, stories.locked]),
        Scenario(set_up=stories.one_seat, actors=[finish, poll]),
        Scenario(set_up=stories.one_seat, actors=[named, stories.naive]),
        Scenario(
            set_up=stories.two_seats,
            actors=[reads_more_once_the_first_is_raised, raises_the_first, raises_the_second],
            invariant=bool,
        ),
    ],
    ids=["three", "polling", "random values", "more rows in some schedules"],
)
def test_two_processes_find_what_one_finds(scenario: Scenario) -> None:
    assert facts(explored(scenario, processes=2)) == facts(explored(scenario))


def test_no_process_waits_for_its_next_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    submit, branches, in_hand = ProcessPoolExecutor.submit, [], []

    def counted(self: ProcessPoolExecutor, *args: Any, **options: Any) -> Any:
        branches.append(submit(self, *args, **options))
        in_hand.append(sum(not branch.done() for branch in branches))
        return branches[-1]

    monkeypatch.setattr(ProcessPoolExecutor, "submit", counted)
    explored(Scenario(set_up=stories.one_seat, actors=[stories.naive] * 3), processes=2, max_schedules=40)

    assert max(in_hand) == 3, "two are played, and one more is there"


def test_the_command_finds_a_race_by_its_name_and_with_its_actors() -> None:
    out = StringIO()
    call_command(
        "explore", "lost-update:naive", "--actors", "3", "--max-schedules", "20", "--processes", "2", stdout=out
    )
    assert out.getvalue().startswith("lost-update:naive: broken")


def test_the_fixture_explores_scratch_databases_and_comes_back_to_the_tests_own() -> None:
    stories.one_seat()
    result = RaceFixture()(stories.naive, stories.naive, set_up=stories.one_seat, observe=seats, processes=2)
    assert [outcome.state for outcome in result.outcomes] == ["1 seat"]
    assert seats() == "1 seat"


def test_the_fixture_says_what_other_processes_cannot_load() -> None:
    with pytest.raises(
        Failed, match="^Several processes explore only what each .* scenario of functions of modules.*lambda"
    ):
        RaceFixture()(stories.naive, lambda pk: None, set_up=stories.one_seat, processes=2)


# Ends


def test_limits_hold_for_all_processes_together() -> None:
    limited = explored(NAIVE, processes=2, max_schedules=3)
    assert (limited.schedules, limited.left > 0) == (3, True)
    first = explored(NAIVE, processes=2, stop_on_first=True)
    assert (first.verdict, sum(outcome.count for outcome in first.outcomes if not outcome.holds)) == ("broken", 1)
    assert first.failure is not None
    assert any(step.values for step in first.failure.steps), "it is replayed with the values read"
    assert explored(NAIVE, processes=2, timeout=0.0).verdict == "incomplete"


def test_errors_of_the_invariant_are_raised_as_they_are() -> None:
    mistaken = Scenario(set_up=stories.one_seat, actors=[stories.naive] * 2, invariant=mistaken_in_a_worker)
    with pytest.raises(LookupError, match="no such seat"):
        explored(mistaken, processes=2)


def test_a_step_that_does_not_end_is_stuck() -> None:
    scenario = Scenario(set_up=stories.one_seat, actors=[stuck_in_a_worker, stories.naive], invariant=bool)
    result = explored(scenario, processes=2, step_timeout=1.0, warm_up=False)
    assert (result.verdict, "pg_sleep" in result.reason) == ("stuck", True)


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Scenario, Path]:
    """A scenario, and the file whose text says how often its worker dies."""
    # The process that forks workers has its environment from before.
    multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]
    monkeypatch.setenv(_FILE, str(tmp_path / "file"))
    return Scenario(set_up=stories.one_seat, actors=[dies_while_the_file_is_there] * 2), tmp_path / "file"


def test_a_worker_that_dies_is_replaced_and_its_schedule_is_run(dying: tuple[Scenario, Path]) -> None:
    scenario, file = dying
    expected = facts(explored(scenario))
    file.write_text("once")
    assert facts(explored(scenario, processes=2)) == expected
    assert not file.exists()


def test_workers_that_die_again_and_again_are_an_error(dying: tuple[Scenario, Path]) -> None:
    scenario, file = dying
    file.write_text("always")
    with pytest.raises(WorkerDied, match="3 times a process that explored has ended by itself") as caught:
        explored(scenario, processes=2)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301 - made right here


# What is refused


def test_other_databases_than_scratch_databases_are_refused() -> None:
    with pytest.raises(NotExplorable, match="'default' is not one: use `manage.py explore NAME --processes N`"):
        explore(NAIVE, processes=2, database_is_mine=True)


# Ctrl-C

PROGRAM = """
import django
django.setup()
from django.db import connection
connection.settings_dict["NAME"] = {database!r}
from tests.django_lockstep.lab.explorer.test_processes import *
from django_lockstep.lab.explorer import processes
processes._ALONE = 0.0
explored(Scenario(set_up=stories.one_seat, actors=[stuck_in_a_worker] * 2), processes=2, step_timeout=60, warm_up=False)
"""


def sleeping() -> int:
    active = "SELECT count(*) FROM pg_stat_activity WHERE datname LIKE %s AND wait_event = 'PgSleep'"
    return int(query(active, f"{SCRATCH_PREFIX}%"))


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_ctrl_c_ends_all_processes_and_leaves_no_database() -> None:
    code = PROGRAM.format(database=connection.settings_dict["NAME"])
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, start_new_session=True)
    try:
        # Four processes and three databases are made before.
        until(lambda: sleeping() > 0, "a worker to be under way", patience=5 * PATIENCE)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()

    assert said.rstrip().endswith(b"KeyboardInterrupt")
    until(lambda: not group_lives(process.pid), "the last process of the group to end")
