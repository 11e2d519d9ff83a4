"""What SERIALIZABLE locks for a read, on the server: single rows wherever the explorer takes them for single ones."""

from collections.abc import Iterator

import pytest
from django.db import connection, transaction

from django_lockstep.lab.explorer.driver.controller import ONE_PLAN
from django_lockstep.lab.explorer.effects.catalog import Catalog
from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.effects.overlap import Overlap
from django_lockstep.lab.explorer.effects.sql import parse
from django_lockstep.lab.explorer.effects.transactions import Transaction
from django_lockstep.lab.explorer.search.schedules import Follow
from django_lockstep.locking.transactions import IsolationLevel, isolated_transaction
from tests.django_lockstep.lab.explorer.conftest import Exploring
from tests.django_lockstep.lab.explorer.schemas import made, race_on, run

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
        reader = Transaction(Catalog.load(cursor), Overlap())
    found: set[int | None] = set()
    for number, sql in enumerate(statements):
        operation = Operation(
            alias="default", pid=1, sql=sql, in_transaction=number > 0, ends_idle=False, isolation="serializable"
        )
        reader.begin(operation)
        accesses = reader.footprint(operation).accesses
        found |= {key for access in accesses for table, key in access.read if table == "made_a"}
    return found


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
        ([f"{BY_KEY} 1 AND v = 0 LIMIT 21"], 1),
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


@pytest.mark.parametrize(("column", "entries"), [("v", 0), ("w", 1)])
def test_an_update_adds_an_entry_to_an_index_if_that_has_the_column(column: str, entries: int) -> None:
    update = f"UPDATE made_a SET {column} = 3 WHERE id = 1"
    with connection.cursor() as cursor:
        statement = parse(update, None, catalog=Catalog.load(cursor))
    with transaction.atomic():
        run(update)
        (added,) = run("SELECT n_tup_upd - n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'made_a'")

    assert (added, len(statement.entered)) == ((entries,), entries)


@pytest.mark.parametrize(
    ("level", "width", "before", "crowded"),
    [
        ("serializable", 10, 0, set()),
        ("serializable", 390, 0, {("default", "crowded", "made_c", "")}),
        ("serializable", 10, 300, set()),
        ("read committed", 390, 0, set()),
    ],
    ids=["few bytes", "many bytes", "many bytes of before", "where it does not matter"],
)
def test_a_table_of_which_a_run_fills_a_page_is_known(
    level: IsolationLevel, width: int, before: int, crowded: set[tuple[str, str, str]], exploring: Exploring
) -> None:
    def update(made: bool) -> None:
        with isolated_transaction(isolation_level=level):
            run("UPDATE made_c SET v = v + 1 WHERE id = 1")

    insert = f"INSERT INTO made_c SELECT number, 0, repeat('x', {width}) FROM generate_series(1, {{}}) number"
    table = "CREATE TABLE made_c (id int PRIMARY KEY, v int, fill text)"
    scenario = race_on(("made_c",), [insert.format(19)], update, update)
    with made(table, insert.format(before), "DELETE FROM made_c"), exploring(scenario) as session:
        for _ in range(3):
            session.play(Follow(()))
        learned = session.learned

    assert learned.tables == crowded
