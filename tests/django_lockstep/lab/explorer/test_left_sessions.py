"""What is left in a session of an actor, and a schema that has changed since the exploration before."""

import pytest
from django.db import connection
from django.db.models import F

from django_lockstep.lab.explorer import Scenario, explore
from tests.django_lockstep.lab.explorer import stories
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)

backends: set[int] = set()


@pytest.fixture(autouse=True)
def nothing_noted() -> None:
    backends.clear()


def noting(pk: int) -> None:
    Seat.objects.filter(pk=pk).update(price=F("price") + 1)
    backends.add(connection.connection.info.backend_pid)


SCENARIO = Scenario(set_up=stories.one_seat, actors=[noting, noting], observe=stories.price)


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
