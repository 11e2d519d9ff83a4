"""``manage.py explore``."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tests.lab.explorer import stories

pytestmark = pytest.mark.django_db(transaction=True)

NAIVE = stories.raising(stories.naive)
LOCKED = stories.raising(stories.locked)
HERE = "tests.lab.explorer.test_command"


def run(*args: str) -> str:
    out = StringIO()
    call_command("explore", *args, stdout=out)
    return out.getvalue()


def test_a_race_that_has_to_break_and_does_is_fine() -> None:
    assert "lost-update:naive: broken" in (shown := run("lost-update:naive"))
    assert "lost update: " in shown


def test_own_scenarios_have_to_hold() -> None:
    assert "LOCKED: holds" in run(f"{HERE}.LOCKED")
    with pytest.raises(CommandError, match="Not as expected") as refused:
        run(f"{HERE}.NAIVE")
    assert refused.value.returncode == 1


def test_one_schedule_is_replayed() -> None:
    assert "schedule AAABBB, right" in run(f"{HERE}.NAIVE", "--schedule", "AAABBB")
    with pytest.raises(CommandError, match="ended wrong"):
        run(f"{HERE}.NAIVE", "--schedule", "AABBAB")


def test_json_has_each_exploration_by_name() -> None:
    found = json.loads(run("queue:unlocked", "--format", "json"))
    assert found["queue:unlocked"]["verdict"] == "broken"


def test_limits_are_passed_on() -> None:
    with pytest.raises(CommandError, match="Not as expected"):
        run("lost-update:pessimistic", "--max-schedules", "1")


def test_the_ready_made_races_are_listed() -> None:
    assert "write-skew:unlocked" in run("--list")


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["nothing"], "no ready-made scenario"),
        ([f"{HERE}.HERE"], "not a Scenario"),
        (["--schedule", "AB"], "exactly one"),
        ([f"{HERE}.NAIVE", "--schedule", "X"], "stands for|has 'X'"),
    ],
)
def test_wrong_usage_exits_with_2(args: list[str], complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint) as refused:
        run(*args)
    assert refused.value.returncode == 2
