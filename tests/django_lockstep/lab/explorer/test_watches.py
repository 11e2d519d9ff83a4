"""Between two moves: which locks each actor holds, what is committed, and what the open transactions see."""

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from pytest_django import Settings

from django_lockstep.lab.explorer import Run, Scenario, explore
from django_lockstep.lab.explorer import replay as replay_schedule
from django_lockstep.lab.explorer.steps import Masker
from django_lockstep.lab.explorer.watches import _held
from django_lockstep.locking.transactions import isolated_transaction
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


# What is committed, and what is seen


Views = dict[str, list[str | None]]


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
