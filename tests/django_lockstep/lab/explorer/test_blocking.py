"""Every way to wait, or to be refused, is an ordinary outcome: who waited for whom, on what, and how it ended."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F

from django_lockstep.lab.explorer import Run, Scenario, Stuck, explore, replay
from django_lockstep.locking.transactions import isolated_transaction
from tests.django_lockstep.lab.explorer import programs, stories
from tests.support.sessions import ADVISORY_LOCKS, Session, query
from tests.testapps.shop.models import Seat, Ticket

pytestmark = pytest.mark.django_db(transaction=True)

KEY = uuid.UUID(int=1)


def waits(run: Run) -> list[tuple[str, str, tuple[str, ...], str | None]]:
    """Who waited, with which statement, for whom, and who ended it."""
    return [(step.actor, step.sql.split()[0], step.waited_for, step.woken_by) for step in run.steps if step.waited_for]


def race(*actors: stories.Actor, set_up: Callable[[], Any] = stories.one_seat) -> Scenario:
    return Scenario(set_up=set_up, actors=actors, invariant=lambda fixture: True)


def in_sql(*statements: str) -> stories.Actor:
    """A transaction of statements in the code's own words."""

    def actor(pk: int) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            for sql in statements:
                cursor.execute(sql)

    return actor


def locking(**options: Any) -> stories.Actor:
    """A transaction that locks the seat and answers how many rows it got."""

    def actor(pk: int) -> int:
        with transaction.atomic():
            return len(Seat.objects.select_for_update(**options).filter(pk=pk))

    return actor


def insert(pk: int) -> None:
    with transaction.atomic():
        Ticket.objects.bulk_create([Ticket(id=KEY, seat_id=pk)])


def insert_and_give_up(pk: int) -> None:
    with transaction.atomic():
        insert(pk)
        transaction.set_rollback(True)


def sell(pk: int) -> None:
    with transaction.atomic():
        Ticket.objects.create(seat_id=pk)


# Waiting


@pytest.mark.parametrize(
    ("first", "second", "waiting"),
    [
        (locking(), locking(), "SELECT"),
        (stories.computed, stories.computed, "UPDATE"),
        (locking(no_key=True), stories.computed, "UPDATE"),
        (insert, insert, "INSERT"),
        (locking(), sell, "COMMIT"),
        (in_sql("SELECT pg_advisory_xact_lock(7)"), in_sql("SELECT pg_advisory_xact_lock(7)"), "SELECT"),
        (in_sql("LOCK TABLE shop_seat"), stories.price, "SELECT"),
        (in_sql("LOCK TABLE shop_seat IN SHARE MODE"), stories.computed, "UPDATE"),
        (in_sql("TRUNCATE shop_ticket"), sell, "INSERT"),
    ],
)
def test_a_second_one_waits_until_the_first_one_commits(
    first: stories.Actor, second: stories.Actor, waiting: str
) -> None:
    run = replay(race(first, second), "ABB" if waiting == "COMMIT" else "AB")

    assert waits(run) == [("B", waiting, ("A",), "A")]


@pytest.mark.parametrize(("options", "waiting"), [({}, ["COMMIT"]), ({"no_key": True}, [])])
def test_a_child_waits_at_commit_for_its_locked_parent_unless_the_key_stays(
    options: dict[str, Any], waiting: list[str]
) -> None:
    result = explore(race(locking(**options), sell))

    runs = [replay(race(locking(**options), sell), outcome.schedule) for outcome in result.outcomes]
    assert result.verdict == "holds"
    assert [step.sql for step in replay(race(locking(**options), sell), "ABB").steps if step.waited_for] == waiting
    assert all(run.holds for run in runs)


def session_lock(pk: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(7)")
        cursor.execute("SELECT pg_advisory_unlock(7)")


def forgotten_session_lock(pk: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(7)")
    stories.price(pk)


def test_a_session_s_advisory_lock_is_waited_for() -> None:
    assert waits(replay(race(session_lock, session_lock), "AB")) == [("B", "SELECT", ("A",), "A")]
    assert explore(race(session_lock, session_lock)).verdict == "holds"


def test_a_forgotten_advisory_lock_lasts_until_its_actor_is_done() -> None:
    run = replay(race(forgotten_session_lock, session_lock), "ABA")

    assert waits(run) == [("B", "SELECT", ("A",), "A")]
    assert query(f"SELECT count(*) FROM {ADVISORY_LOCKS}") == 0


def test_a_unique_key_lets_the_second_one_fail_or_in_where_the_first_gives_up() -> None:
    assert replay(race(insert, insert), "AB").errors == {"B": "23505"}
    assert replay(race(insert_and_give_up, insert), "AAAB").errors == {}


def test_every_waiter_is_woken_once_its_turn_has_come() -> None:
    run = replay(race(stories.computed, stories.computed, stories.computed), "ABC")

    assert [(actor, blockers) for actor, _, blockers, _ in waits(run)] == [("B", ("A",)), ("C", ("B",))]
    assert run.errors == {}


def guarded(pk: int) -> int:
    """A version's UPDATE inside of a longer transaction: 1 if it came in time."""
    with transaction.atomic():
        changed = Seat.objects.filter(pk=pk, version=1).update(guest="Ada", version=2)
        stories.price(pk)
        return changed


def test_a_guarded_update_that_waited_and_matched_nothing_still_holds_the_row() -> None:
    run = replay(race(guarded, guarded, stories.computed), "ABAAC")

    assert run.results == {"A": "1", "B": "0"}
    assert waits(run) == [("B", "UPDATE", ("A",), "A"), ("C", "UPDATE", ("B",), "B")]


# Being refused


@pytest.mark.parametrize(
    ("options", "errors", "results"),
    [({"nowait": True}, {"B": "55P03"}, {"A": "1"}), ({"skip_locked": True}, {}, {"A": "1", "B": "0"})],
)
def test_nowait_is_refused_and_skip_locked_goes_without(
    options: dict[str, Any], errors: dict[str, str], results: dict[str, str]
) -> None:
    run = replay(race(locking(), locking(**options)), "ABBA")

    assert (run.errors, run.results) == (errors, results)
    assert waits(run) == []


@pytest.mark.parametrize(("setting", "sqlstate"), [("lock_timeout", "55P03"), ("statement_timeout", "57014")])
def test_timeouts_end_a_wait_while_the_other_one_stands(setting: str, sqlstate: str) -> None:
    def impatient(pk: int) -> None:
        with transaction.atomic():
            query(f"SELECT set_config('{setting}', '30ms', true)")
            list(Seat.objects.select_for_update().filter(pk=pk))

    def patient(pk: int) -> None:
        with transaction.atomic():
            Seat.objects.filter(pk=pk).update(guest="Ada")
            query("SELECT 1 FROM pg_sleep(0.2)")

    run = replay(race(patient, impatient), "ABBA")

    assert run.errors == {"B": sqlstate}


def test_a_serialization_failure_is_an_error_like_any_other() -> None:
    def repeatable(pk: int) -> None:
        with isolated_transaction(isolation_level="repeatable read"):
            Seat.objects.filter(pk=pk).update(price=stories.price(pk) + 10)

    result = explore(Scenario(set_up=stories.one_seat, actors=[repeatable] * 2))

    assert (result.verdict, set(result.errors)) == ("holds", {"40001"})
    assert {tuple(outcome.errors.values()) for outcome in result.outcomes} == {(), ("40001",)}


# Deadlocks


def three_seats() -> list[int]:
    return [stories.one_seat() for _ in range(3)]


RING = Scenario(set_up=three_seats, actors=[stories.move(0, 1), stories.move(1, 2), stories.move(2, 0)])


def test_three_in_a_ring_deadlock() -> None:
    run = replay(RING, "ABCABC")

    (deadlock,) = run.deadlocks
    assert (deadlock.actors, deadlock.victim) == (("A", "B", "C"), "C")
    assert run.errors == {"C": "40P01"}
    assert all(f"{name} waits for" in deadlock.detail for name in "ABC")


def test_three_in_a_ring_are_explored_to_the_end() -> None:
    result = explore(RING)

    assert (result.verdict, result.deadlocks > 0) == ("holds", True)
    assert {tuple(o.errors.items()) for o in result.outcomes} == {(), *(((name, "40P01"),) for name in "ABC")}


def upgraded(pk: int) -> None:
    """Share the lock first, as a foreign key does, and then want it alone."""
    with transaction.atomic():
        query("SELECT price FROM shop_seat WHERE id = %s FOR SHARE", pk)
        Seat.objects.filter(pk=pk).update(price=F("price") + 1)


def test_two_actors_that_share_a_lock_and_both_want_it_exclusively_deadlock() -> None:
    result = explore(race(upgraded, upgraded))

    assert result.deadlocks > 0
    assert set(result.errors) == {"40P01"}


def test_two_that_go_on_within_their_statements_and_then_wait_for_each_other_deadlock() -> None:
    shared = ("savepoint", False, ("lock_share", 0))
    program = ("read committed", (shared, ("savepoint", False, ("add_to_cheap", 1))))
    result = explore(programs.race(program, program, program), max_schedules=20)

    assert (result.verdict, set(result.errors)) == ("incomplete", {"40P01"})


# Somebody outside of the race


def test_who_waits_for_a_session_outside_is_stuck_and_the_session_named(held: int, other: Session) -> None:
    scenario = race(locking(), stories.price, set_up=lambda: held)

    result = explore(scenario, step_timeout=1.0)

    assert result.verdict == "stuck"
    first = result.reason.partition("\n")[0]
    assert first.startswith("A step took longer than 1 s without waiting for another actor: A after 'SELECT")
    assert ", at tests/django_lockstep/lab/explorer/" in first
    assert f"waits for session {other.pid} (" in result.reason
    assert "idle in transaction" in result.reason
    with pytest.raises(Stuck, match=f"session {other.pid}"):
        replay(scenario, "", step_timeout=1.0)


def test_who_waits_for_a_connection_of_his_own_is_stuck(allowed: str) -> None:
    def both(pk: int) -> None:
        with transaction.atomic():
            stories.computed(pk)
            Seat.objects.using(allowed).filter(pk=pk).update(guest="Ada")

    result = explore(race(both), step_timeout=1.0)

    assert result.verdict == "stuck"
    assert "waits for A's own connection" in result.reason
