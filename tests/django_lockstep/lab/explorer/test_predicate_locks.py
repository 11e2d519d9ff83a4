"""What SERIALIZABLE locks for a read, on the server: single rows wherever the explorer takes them for single ones."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from django_lockstep.lab.explorer import explore
from django_lockstep.lab.explorer.driver.controller import ONE_PLAN
from django_lockstep.lab.explorer.effects.catalog import Catalog
from django_lockstep.lab.explorer.effects.footprints import only
from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.effects.serializable import Commits
from django_lockstep.lab.explorer.effects.transactions import Transaction
from django_lockstep.lab.explorer.search.schedules import Follow
from django_lockstep.locking.transactions import IsolationLevel, isolated_transaction
from tests.django_lockstep.lab.explorer.conftest import Exploring
from tests.django_lockstep.lab.explorer.schemas import made, program, race_on, run

pytestmark = pytest.mark.django_db(transaction=True)

SCHEMA = (
    "CREATE TABLE made_a (id int PRIMARY KEY, v int, w int)",
    "CREATE INDEX made_w ON made_a (w)",
    "CREATE TABLE made_b (id int PRIMARY KEY, a int REFERENCES made_a DEFERRABLE INITIALLY DEFERRED)",
    "INSERT INTO made_a SELECT number, 0, 7 FROM generate_series(1, 9) number",
)
LOCKED = """
SELECT count(*) FILTER (WHERE tuple IS NULL), count(*) FROM pg_locks
WHERE pid = pg_backend_pid() AND mode = 'SIReadLock' AND relation = 'made_a'::regclass
"""
BY_KEY = "SELECT v FROM made_a WHERE id = "


@pytest.fixture(autouse=True)
def schema() -> Iterator[None]:
    with made(*SCHEMA):
        yield


def seen_by_the_explorer(statements: list[str]) -> set[int | None]:
    """Return the keys of the rows of made_a that it takes for read; None if others may be locked, too."""
    with connection.cursor() as cursor:
        reader = Transaction(Catalog.load(cursor), Commits())
    keys: set[int | None] = set()
    for number, sql in enumerate(statements):
        operation = Operation(
            alias="default", pid=1, sql=sql, in_transaction=number > 0, ends_idle=False, isolation="serializable"
        )
        reader.begin(operation)
        reads = only({"ssi read"}, reader.footprint(operation))
        keys |= {key for _, (table, key), _ in reads if table == "made_a"}
    return keys


def locked_by_the_server(statements: list[str]) -> tuple[int, int]:
    """Return how many locks of pages, or of all, of made_a a transaction has after these, and how many at all."""
    with transaction.atomic():
        run("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        for sql in (*ONE_PLAN.replace("SET", "SET LOCAL").split(";"), *statements, "SET CONSTRAINTS ALL IMMEDIATE"):
            run(sql)
        ((coarse, all_of_them),) = run(LOCKED)
        return coarse, all_of_them


@pytest.mark.parametrize(
    ("statements", "rows"),
    [
        ([f"{BY_KEY} 1"], 1),
        ([f"{BY_KEY} 1", f"{BY_KEY} 1", f"{BY_KEY} 2"], 2),
        (["SELECT v FROM made_a WHERE id IN (1, 2) ORDER BY id FOR UPDATE"], 2),
        ([f"{BY_KEY} 1 LIMIT 21"], 1),
        ([f"{BY_KEY} 99"], 0),
        (["UPDATE made_a SET v = 1 WHERE id = 1", f"{BY_KEY} 2"], 1),
        (["INSERT INTO made_b (id, a) VALUES (1, 3)"], 1),
        (["UPDATE made_a SET v = 1 WHERE id = 3", "INSERT INTO made_b (id, a) VALUES (1, 3)"], 0),
        ([f"{BY_KEY} 1", "SAVEPOINT s1_x1", f"{BY_KEY} 2", "RELEASE SAVEPOINT s1_x1"], 2),
    ],
)
def test_rows_read_by_the_primary_key_alone_are_locked_singly(statements: list[str], rows: int) -> None:
    assert None not in seen_by_the_explorer(statements)
    assert locked_by_the_server(statements) == (0, rows)


@pytest.mark.parametrize(
    "statements",
    [
        [f"{BY_KEY} 1", f"{BY_KEY} 2", f"{BY_KEY} 3"],
        ["SELECT v FROM made_a WHERE id IN (1, 2, 3)"],
        [f"{BY_KEY} 1", f"{BY_KEY} 2", "INSERT INTO made_b (id, a) VALUES (1, 3)"],
        ["SELECT v FROM made_a WHERE w = 7 ORDER BY id"],
        ["SELECT v FROM made_a"],
    ],
)
def test_of_more_rows_the_server_locks_the_page(statements: list[str]) -> None:
    coarse, _ = locked_by_the_server(statements)

    assert coarse
    assert None in seen_by_the_explorer(statements)


@pytest.mark.parametrize(
    ("level", "column", "width", "entries"),
    [
        ("serializable", "v", 10, False),
        ("serializable", "w", 10, True),
        ("serializable", "v", 390, True),
        ("read committed", "w", 10, False),
    ],
    ids=["no index", "an index", "a full page", "where it does not matter"],
)
def test_an_update_that_adds_entries_to_indexes_is_known_by_what_was_counted(
    level: IsolationLevel, column: str, width: int, entries: bool, exploring: Exploring
) -> None:
    def update(fixture: bool) -> None:
        with isolated_transaction(isolation_level=level):
            run(f"UPDATE made_c SET {column} = {column} + 1 WHERE id = 1")

    insert = f"INSERT INTO made_c SELECT number, 0, 7, repeat('x', {width}) FROM generate_series(1, 19) number"
    table = "CREATE TABLE made_c (id int PRIMARY KEY, v int, w int, fill text)"
    scenario = race_on(("made_c",), [insert], update, update)
    with made(table, "CREATE INDEX made_cw ON made_c (w)"), exploring(scenario) as session:
        for _ in range(3):
            session.play(Follow(()))
        learned = {what for kind, _, what, *_ in session.learned if kind == "catalog"}

    assert ("entries" in learned) is entries


@pytest.mark.parametrize("with_third", [True, False])
def test_who_is_let_go_by_one_that_wrote_nothing_may_be_refused_by_chance(with_third: bool) -> None:
    def at(*statements: str) -> Any:
        return program("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", *statements)

    holder = at(f"{BY_KEY} 1 FOR UPDATE")
    waiter = at(f"{BY_KEY} 2", "UPDATE made_a SET v = 1 WHERE id = 1")
    third = at("UPDATE made_a SET v = 1 WHERE id = 2")
    result = explore(race_on(("made_a",), [], holder, waiter, *[third] * with_third), raises=DatabaseError)

    assert (result.unsteerable > 0) is with_third
