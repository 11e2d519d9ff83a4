"""Between two moves: what is committed, and what the open transactions see."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from pytest_django import Settings

from django_lockstep.lab.explorer import Run, Scenario, explore
from django_lockstep.lab.explorer import replay as replay_schedule
from django_lockstep.locking.transactions import isolated_transaction
from tests.django_lockstep.lab.explorer import stories
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)

Views = dict[str, list[str | None]]


def replay(schedule: str, *actors: stories.Actor, set_up: Callable[[], Any] = stories.one_seat) -> Run:
    return replay_schedule(Scenario(set_up=set_up, actors=actors, observe=lambda fixture: ""), schedule, rows=True)


def prices(run: Run) -> list[Views]:
    """Return by move what everyone sees: the prices of all seats."""
    views: list[Views] = [{} for _ in run.schedule]
    for view in run.seen:
        if view.move >= 0:
            views[view.move][view.actor] = [row.get("price") for row in view.rows]
    return views


def test_a_write_is_seen_by_its_transaction_alone_until_it_is_committed() -> None:
    run = replay("AABB", stories.naive, stories.naive)
    assert run.schedule == "AABBAB"
    read, written, other_read, waits, committed, end = prices(run)
    assert read == {"": ["100.00"], "A": ["100.00"]}
    assert written == {"": ["100.00"], "A": ["110.00"]}
    assert other_read == {"": ["100.00"], "A": ["110.00"], "B": ["100.00"]}
    assert waits == {"": ["100.00"], "A": ["110.00"]}  # who waits cannot be asked
    assert committed == {"": ["110.00"], "B": ["110.00"]}  # and lost an update by that
    assert end == {"": ["110.00"]}


def reads_twice(pk: int) -> None:
    with isolated_transaction(isolation_level="repeatable read"):
        stories.price(pk)
        stories.price(pk)


def test_a_snapshot_sees_what_was_committed_before_it() -> None:
    set_level, taken, _, after, *_ = prices(replay("AABBA", reads_twice, stories.computed))
    assert "A" not in set_level  # asking would take the snapshot too early
    assert taken["A"] == ["100.00"]
    assert after == {"": ["110.00"], "A": ["100.00"]}


def test_a_serializable_transaction_is_not_asked() -> None:
    assert {view.actor for view in replay("AABB", stories.serializable, stories.serializable).seen} == {""}


def locks_the_table(pk: int) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE shop_seat IN ACCESS EXCLUSIVE MODE")
        Seat.objects.filter(pk=pk).update(price=F("price") + 10)


def test_who_cannot_read_the_table_now_sees_nothing() -> None:
    views = prices(replay("", locks_the_table))
    assert views[0].keys() == views[1].keys() == {"A"}


def deletes(pk: int) -> None:
    with transaction.atomic():
        Seat.objects.filter(pk=pk).delete()


def test_a_row_that_is_gone_is_not_there() -> None:
    deleted = prices(replay("", deletes))[-2]
    assert deleted == {"": ["100.00"], "A": []}


def test_only_columns_that_change_are_kept_behind_the_key() -> None:
    assert {tuple(row) for view in replay("", stories.naive).seen for row in view.rows} == {("id", "version", "price")}


def test_what_was_there_before_the_first_move_is_known() -> None:
    assert [(view.move, view.rows[0]["price"]) for view in replay("", raises_at_once).seen] == [
        (-1, "100.00"),
        (0, "110.00"),
    ]


def raises_at_once(pk: int) -> None:
    Seat.objects.filter(pk=pk).update(price=F("price") + 10)


def test_tables_in_which_nothing_changes_are_left_out() -> None:
    assert replay("", lambda pk: Seat.objects.filter(pk=pk).update(price=100)).seen == ()


def renames(pk: int) -> None:
    Seat.objects.filter(pk=pk).update(guest="Ada")


def test_secrets_are_masked(settings: Settings) -> None:
    settings.LOCKSTEP_LAB_SECRETS = ["guest"]
    seen = replay("", renames).seen
    assert [view.rows[0].keys() for view in seen] == [{"id", "version", "guest"}] * len(seen) != []
    assert "Ada" not in str(seen)


@pytest.mark.parametrize("actor", [stories.naive, stories.locked, stories.serializable, stories.optimistic])
def test_looking_changes_nothing_of_the_run(actor: stories.Actor) -> None:
    scenario = stories.raising(actor)
    for outcome in explore(scenario).outcomes:
        plain = replay_schedule(scenario, outcome.schedule)
        looked = replay_schedule(scenario, outcome.schedule, rows=True)
        assert looked.seen
        assert replace(looked, seen=(), held=()) == plain


def shows_its_timeout(pk: int) -> str:
    with transaction.atomic():
        Seat.objects.filter(pk=pk).update(price=F("price") + 1)
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            return str(cursor.fetchone()[0])


def test_no_setting_is_left_in_the_transaction() -> None:
    run = replay("", shows_its_timeout)
    assert run.seen
    assert run.results["A"] != "50ms"
