"""What an exploration keeps for the next one of the same process, and when it lets go of it."""

import threading
from collections.abc import Callable, Iterator

import pytest
from django.db import connection
from django.db.models import F
from psycopg import IsolationLevel

from django_lockstep.lab.explorer import Scenario, close_idle_sessions, explore
from django_lockstep.lab.explorer.tables import control_session
from tests.django_lockstep.lab.explorer import stories
from tests.support.sessions import PATIENCE, query, until
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)

backends: set[int] = set()


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    close_idle_sessions()
    backends.clear()
    yield
    close_idle_sessions()


def noting(pk: int) -> None:
    Seat.objects.filter(pk=pk).update(price=F("price") + 1)
    backends.add(connection.connection.info.backend_pid)


SCENARIO = Scenario(set_up=stories.one_seat, actors=[noting, noting], observe=stories.price)


def others() -> int:
    return int(query("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")) - 1


def test_the_next_exploration_goes_on_with_the_sessions_and_threads_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control_session, "IDLE", 60.0)  # a machine may stand still for a second
    explore(SCENARIO)
    first, threads = set(backends), set(threading.enumerate())
    explore(SCENARIO)

    assert backends == first
    assert {thread for thread in set(threading.enumerate()) - threads if thread.name.startswith("race")} == set()


def test_idle_ones_are_closed_by_themselves() -> None:
    before = others()  # tests of other files may have left some
    explore(SCENARIO)

    assert others() > before
    until(lambda: others() <= before, "the sessions to be closed")
    until(lambda: not any(thread.name.startswith("race") for thread in threading.enumerate()), "the threads to end")


def test_sessions_that_the_server_has_ended_are_replaced() -> None:
    explore(SCENARIO)
    query(
        "SELECT count(pg_terminate_backend(pid, %s)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
        int(PATIENCE * 1000),
    )
    first = set(backends)
    backends.clear()

    assert explore(SCENARIO).verdict == "holds"
    assert backends.isdisjoint(first)


def by_set() -> None:
    execute("SET statement_timeout = '1h'")


def in_the_driver() -> None:
    connection.connection.isolation_level = IsolationLevel.REPEATABLE_READ


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


@pytest.mark.parametrize("change", [by_set, in_the_driver])
def test_a_session_that_an_actor_has_changed_is_not_kept(change: Callable[[], None]) -> None:
    def changing(pk: int) -> None:
        noting(pk)
        change()

    explore(Scenario(set_up=stories.one_seat, actors=[changing], observe=stories.price))
    first = set(backends)
    backends.clear()
    explore(SCENARIO)

    assert backends.isdisjoint(first)


def sessions_of_an_actor_that_sends(sql: str) -> int:
    def sending(pk: int) -> None:
        noting(pk)
        execute(sql)

    result = explore(Scenario(set_up=stories.one_seat, actors=[sending], observe=stories.price))
    assert result.reason == "nothing was raced: A is the only actor"  # and nothing else was wrong
    return len(backends)


@pytest.mark.parametrize(
    "sql",
    [
        "DO $$ BEGIN PERFORM set_config('work_mem', '5MB', false); END $$",
        "DO $$ BEGIN PERFORM set_config('shop.till', '5', false); END $$",
        "CREATE TEMPORARY TABLE till (number int)",
        "PREPARE till AS SELECT 1",
        "SELECT pg_advisory_lock(5)",
        "LISTEN till",
        "DECLARE till CURSOR WITH HOLD FOR SELECT 1",
        "SET ROLE pg_monitor",
    ],
)
def test_a_session_in_which_something_is_left_ends_with_its_run(sql: str) -> None:
    assert sessions_of_an_actor_that_sends(sql) > 1


def raise_first(pks: list[int]) -> None:
    Seat.objects.filter(pk=pks[0]).update(price=F("price") + 1)


def raise_second(pks: list[int]) -> None:
    Seat.objects.filter(pk=pks[1]).update(price=F("price") + 1)


def test_a_changed_schema_is_seen() -> None:
    two_rows = Scenario(
        set_up=lambda: [stories.one_seat(), stories.one_seat()],
        actors=[raise_first, raise_second],
        observe=lambda pks: "",
    )
    assert explore(two_rows).schedules == 1
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION seats_total() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN UPDATE shop_place SET name = name; RETURN NULL; END $$; "
            "CREATE TRIGGER total AFTER UPDATE ON shop_seat FOR EACH ROW EXECUTE FUNCTION seats_total()"
        )
    try:
        assert explore(two_rows).schedules == 2
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION seats_total CASCADE")
