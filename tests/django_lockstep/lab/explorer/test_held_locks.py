"""Between two moves: which locks each actor holds, as the server has them."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import transaction
from django.db.models import F
from pytest_django import Settings

from django_lockstep.lab.explorer import Run, Scenario
from django_lockstep.lab.explorer import replay as replay_schedule
from django_lockstep.lab.explorer.steps import Masker
from django_lockstep.lab.explorer.watches import _held
from tests.django_lockstep.lab.explorer import schemas, stories
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)

Actor = Callable[[Any], Any]
STRENGTHS = ("FOR KEY SHARE", "FOR SHARE", "FOR NO KEY UPDATE", "FOR UPDATE")


def replay(schedule: str, *actors: Actor, set_up: Callable[[], Any] = stories.one_seat) -> Run:
    return replay_schedule(Scenario(set_up=set_up, actors=actors, observe=lambda fixture: ""), schedule, rows=True)


def held(run: Run) -> list[set[tuple[str, str, str]]]:
    """Return by move who holds what, and how, without the numbers of rows."""
    locks: list[set[tuple[str, str, str]]] = [set() for _ in run.schedule]
    for lock in run.held:
        if lock.move >= 0:
            locks[lock.move].add((lock.actor, lock.what.partition(" id=")[0], lock.strength))
    return locks


def sends(*statements: str) -> Actor:
    """Return an actor that sends these in one transaction, with the key that it is given."""

    def act(pk: Any) -> None:
        with transaction.atomic():
            for sql in statements:
                schemas.run(sql.replace("PK", str(pk)))

    return act


def selects(strength: str) -> Actor:
    return sends(f"SELECT id FROM shop_seat WHERE id = PK {strength}")


# Rows


@pytest.mark.parametrize(
    ("statement", "strength"),
    [
        *((f"SELECT id FROM shop_seat WHERE id = PK {strength}", strength) for strength in STRENGTHS),
        ("UPDATE shop_seat SET price = 1 WHERE id = PK", "FOR NO KEY UPDATE"),
        ("UPDATE shop_seat SET id = id + 1000 WHERE id = PK", "FOR UPDATE"),
        ("DELETE FROM shop_seat WHERE id = PK", "FOR UPDATE"),
    ],
)
def test_a_row_that_others_see_is_held_as_strongly_as_the_statement_locks_it(statement: str, strength: str) -> None:
    locked, committed = held(replay("", sends(statement)))
    assert locked == {("A", "shop_seat", strength)}
    assert committed == set()


@pytest.mark.parametrize(
    ("strength", "other_strength"),
    [
        ("FOR KEY SHARE", "FOR KEY SHARE"),
        ("FOR SHARE", "FOR KEY SHARE"),
        ("FOR SHARE", "FOR SHARE"),
        ("FOR NO KEY UPDATE", "FOR KEY SHARE"),
        ("FOR KEY SHARE", "FOR NO KEY UPDATE"),
    ],
)
def test_of_a_row_that_two_have_locked_each_holds_its_own_strength(strength: str, other_strength: str) -> None:
    first, both, left, none = held(replay("ABAB", selects(strength), selects(other_strength)))
    assert first == {("A", "shop_seat", strength)}
    assert both == {("A", "shop_seat", strength), ("B", "shop_seat", other_strength)}
    assert left == {("B", "shop_seat", other_strength)}
    assert none == set()


def test_the_row_is_named_by_its_key() -> None:
    keys: list[int] = []

    def noted() -> int:
        keys.append(stories.one_seat())
        return keys[-1]

    (lock,) = replay("", selects("FOR UPDATE"), set_up=noted).held
    assert lock.what == f"shop_seat id={keys[-1]}"


def test_a_waiter_keeps_what_it_has_locked() -> None:
    def moves_guest(source: int, target: int) -> Actor:
        def act(pks: list[int]) -> None:
            with transaction.atomic():
                for pk in (pks[source], pks[target]):
                    Seat.objects.filter(pk=pk).update(price=F("price") + 1)

        return act

    run = replay("ABAB", moves_guest(0, 1), moves_guest(1, 0), set_up=stories.two_seats)
    waits = [lock for lock in run.held if lock.move == 2]
    assert run.schedule.startswith("ABA")
    assert [(lock.actor, lock.strength) for lock in waits] == [("A", "FOR NO KEY UPDATE"), ("B", "FOR NO KEY UPDATE")]
    assert len({lock.what for lock in waits}) == 2


def test_a_lock_of_a_savepoint_is_its_transactions_until_it_is_rolled_back() -> None:
    run = replay(
        "",
        sends(
            "SAVEPOINT inner_one",
            "SELECT id FROM shop_seat WHERE id = PK FOR UPDATE",
            "ROLLBACK TO SAVEPOINT inner_one",
        ),
    )
    _, locked, rolled_back, _ = held(run)
    assert locked == {("A", "shop_seat", "FOR UPDATE")}
    assert rolled_back == set()


# What no statement says


# Those that Django makes are DEFERRED: they lock at COMMIT, which also releases the lock.
def test_a_foreign_key_locks_the_row_that_it_refers_to() -> None:
    with schemas.made(
        "CREATE TABLE made_parent (id integer PRIMARY KEY)",
        "INSERT INTO made_parent VALUES (7)",
        "CREATE TABLE made_child (id integer PRIMARY KEY, parent integer REFERENCES made_parent)",
    ):
        run = replay("", sends("INSERT INTO made_child VALUES (1, 7)"), set_up=lambda: 0)
    assert held(run)[0] == {("A", "made_parent", "FOR KEY SHARE")}


def test_a_trigger_locks_rows_of_other_tables() -> None:
    with schemas.made(
        "CREATE TABLE made_total (id integer PRIMARY KEY, n integer)",
        "INSERT INTO made_total VALUES (7, 0)",
        "CREATE TABLE made_part (id integer PRIMARY KEY, n integer)",
        "INSERT INTO made_part VALUES (1, 0)",
        "CREATE FUNCTION made_sum() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN UPDATE made_total SET n = n + 1 WHERE id = 7; RETURN new; END'",
        "CREATE TRIGGER made_sum AFTER UPDATE ON made_part FOR EACH ROW EXECUTE FUNCTION made_sum()",
    ):
        run = replay("", sends("UPDATE made_part SET n = 1 WHERE id = 1"), set_up=lambda: 0)
    assert held(run)[0] == {("A", "made_part", "FOR NO KEY UPDATE"), ("A", "made_total", "FOR NO KEY UPDATE")}


# Other locks


@pytest.mark.parametrize(
    ("statement", "lock"),
    [
        ("SELECT pg_advisory_xact_lock(42)", ("A", "advisory key 42", "EXCLUSIVE")),
        ("SELECT pg_advisory_xact_lock_shared(-42)", ("A", "advisory key -42", "SHARE")),
        ("SELECT pg_advisory_xact_lock(1, -2)", ("A", "advisory key 1, -2", "EXCLUSIVE")),
        ("LOCK TABLE shop_seat IN SHARE ROW EXCLUSIVE MODE", ("A", "shop_seat", "SHARE ROW EXCLUSIVE")),
        ("LOCK TABLE shop_seat", ("A", "shop_seat", "ACCESS EXCLUSIVE")),
    ],
)
def test_tables_and_advisory_keys_are_held_too(statement: str, lock: tuple[str, str, str]) -> None:
    assert [lock in locks for locks in held(replay("", sends(statement)))] == [True, False]


def test_reading_holds_nothing() -> None:
    assert replay("", sends("SELECT * FROM shop_seat")).held == ()


# What is not said


def test_rows_of_a_table_that_nobody_can_read_now_are_left_out() -> None:
    run = replay("", sends("SELECT id FROM shop_seat WHERE id = PK FOR UPDATE", "LOCK TABLE shop_seat"))
    assert held(run)[1] == {("A", "shop_seat", "ACCESS EXCLUSIVE")}


def test_a_number_that_fits_a_transaction_and_a_multixact_is_left_out() -> None:
    both: Any = [[900, {"id": "1"}, [[900, "keysh"], [3, "upd"]], "FOR UPDATE"]]
    listed: Any = [[1, "transactionid", "ExclusiveLock", None, 900, "0", None]]
    listed.append([1, "relation", "RowShareLock", "shop_seat", None, "0", ["id"]])
    assert list(_held_of(listed, both)) == []
    assert list(_held_of(listed, [[900, {"id": "1"}, [[3, "upd"]], "FOR UPDATE"]])) == [
        (1, "shop_seat id=1", "FOR UPDATE")
    ]


def _held_of(listed: Any, marked: Any) -> Any:
    server: Any = SimpleNamespace(committed=lambda query: json.dumps(listed if "pg_locks" in query else marked))
    return _held(server, [1], Masker())


def test_secret_keys_are_masked(settings: Settings) -> None:
    settings.LOCKSTEP_LAB_SECRETS = ["token"]
    with schemas.made(
        "CREATE TABLE made_ticket (token text PRIMARY KEY)", "INSERT INTO made_ticket VALUES ('seen0me')"
    ):
        run = replay("", sends("SELECT token FROM made_ticket FOR UPDATE"), set_up=lambda: 0)
    assert [lock.strength for lock in run.held] == ["FOR UPDATE"]
    assert "seen0me" not in str(run.held)


def test_an_actor_that_sends_nothing_holds_nothing() -> None:
    assert replay("", lambda pk: None).held == ()
