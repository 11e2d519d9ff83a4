"""What an exploration keeps for the next one of the same process, and when it lets go of it."""

from collections.abc import Iterator

import pytest
from django.db import connection
from django.db.models import F

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


def others() -> set[int]:
    pids = query("SELECT array_agg(pid) FROM pg_stat_activity WHERE datname = current_database()")
    return {*pids} - {connection.connection.info.backend_pid}


def test_the_next_exploration_goes_on_with_the_sessions_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_session, "IDLE", 60.0)  # a machine may stand still for a second
    before = others()
    explore(SCENARIO)
    kept = others() - before - backends
    explore(SCENARIO)

    assert kept
    assert kept <= others()


def test_idle_ones_are_closed_by_themselves() -> None:
    before = others()  # tests of other files may have left some
    explore(SCENARIO)

    assert others() - before
    until(lambda: others() <= before, "the sessions to be closed")


def test_sessions_that_the_server_has_ended_are_replaced() -> None:
    explore(SCENARIO)
    query(
        "SELECT count(pg_terminate_backend(pid, %s)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
        int(PATIENCE * 1000),
    )

    assert explore(SCENARIO).verdict == "holds"


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


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
