"""Ctrl-C in the middle of everything: the process ends soon and leaves nothing behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from django_lockstep.lab.explorer import Scenario, explore
from django_lockstep.lab.explorer.search.schedules import Follow
from django_lockstep.lab.explorer.tables import control_session
from tests.django_lockstep.lab.explorer import stories
from tests.django_lockstep.lab.explorer.conftest import Exploring
from tests.support.sessions import PATIENCE, query, until
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "interrupted race"

PROGRAM = f"""
import django
django.setup()
from django.db import connection, connections
connection.settings_dict["NAME"] = {{database!r}}
connections.databases["default"]["NAME"] = {{database!r}}
connections.databases["default"]["OPTIONS"] = {{{{"application_name": {NAME!r}}}}}
from django_lockstep.lab.explorer import Scenario, explore
from tests.django_lockstep.lab.explorer import stories
from tests.django_lockstep.lab.explorer.test_interrupt import *
explore(Scenario(set_up=stories.one_seat, actors=[{{actors}}]), step_timeout=60, database_is_mine=True)
"""


def sleeps(pk: int) -> None:
    Seat.objects.filter(pk=pk).update(guest="Ada")
    query("SELECT 1 FROM pg_sleep(60)")


def sleeps_with_the_row(pk: int) -> None:
    connection.set_autocommit(False)
    sleeps(pk)


def loops(pk: int) -> None:
    Seat.objects.filter(pk=pk).update(guest="Ada")
    while True:
        str(pk)


def others() -> list[str]:
    with connection.cursor() as cursor:
        ours = "application_name = %s AND datname = current_database()"
        cursor.execute(f"SELECT coalesce(wait_event, '') FROM pg_stat_activity WHERE {ours}", [NAME])
        return [event for (event,) in cursor.fetchall()]


@contextmanager
def running(actors: str) -> Iterator[subprocess.Popen[bytes]]:
    code = PROGRAM.format(database=connection.settings_dict["NAME"], actors=actors)
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, env=dict(os.environ))
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("actors", "reached"),
    [
        ("sleeps", lambda: "PgSleep" in others()),
        ("sleeps_with_the_row, stories.computed", lambda: "PgSleep" in others()),
        ("loops", lambda: Seat.objects.filter(guest="Ada").exists()),
        ("*[stories.serializable] * 4", lambda: len(others()) >= 6),
    ],
)
def test_ctrl_c_ends_it_and_leaves_nothing_behind(actors: str, reached: object) -> None:
    with running(actors) as process:
        until(reached, "the race to be under way")  # type: ignore[arg-type]
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)

    assert process.returncode not in (0, -signal.SIGKILL)
    assert said.rstrip().endswith(b"KeyboardInterrupt")
    until(lambda: others() == [], "the server to end the sessions")
    assert not Seat.objects.exists()


def test_ctrl_c_while_a_session_of_the_explorer_opens_is_what_it_ends_with(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def interrupted_once(wrapper: BaseDatabaseWrapper) -> Any:
        opened.append(wrapper)
        if len(opened) == 2:
            raise KeyboardInterrupt
        return connect(wrapper)

    connect = control_session._connect
    monkeypatch.setattr(control_session, "_connect", interrupted_once)

    with pytest.raises(KeyboardInterrupt):
        explore(Scenario(set_up=stories.one_seat, actors=[stories.computed] * 2))

    assert len(opened) >= 2
    assert not Seat.objects.exists()


def leave_the_answer(driver: Any) -> None:
    driver.pgconn.send_query(b"SELECT 1")


def fail_in_a_transaction(driver: Any) -> None:
    driver.pgconn.exec_(b"BEGIN; SELECT 1 / 0")


@pytest.mark.parametrize("interrupted", [leave_the_answer, fail_in_a_transaction])
@pytest.mark.parametrize("which", ["driver", "snapshot_holder"])
def test_ctrl_c_in_a_statement_of_the_explorer_is_what_it_ends_with(
    which: str, interrupted: Callable[[Any], None], exploring: Exploring
) -> None:
    scenario = Scenario(set_up=stories.one_seat, actors=[stories.computed] * 2)

    with pytest.raises(KeyboardInterrupt), exploring(scenario) as session:
        session.play(Follow(()))
        interrupted(getattr(session.server("default"), which))
        raise KeyboardInterrupt

    assert not Seat.objects.exists()
    assert explore(scenario).verdict == "holds"
