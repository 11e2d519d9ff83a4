"""What the steps of a transaction touch, without a database."""

from dataclasses import replace
from typing import Any

import pytest
from psycopg.errors import SerializationFailure

from django_lockstep.lab.explorer.catalog import Catalog, TableFacts
from django_lockstep.lab.explorer.footprints import LOCAL, Footprint, dependent
from django_lockstep.lab.explorer.operations import Operation
from django_lockstep.lab.explorer.overlap import Overlap
from django_lockstep.lab.explorer.transactions import Transaction

SEAT = TableFacts(name="seat", pk="id", unique=frozenset({"id"}))
TICKET = replace(SEAT, name="ticket")
READ, WRITE = "SELECT price FROM seat WHERE id = 1", "UPDATE seat SET price = 2 WHERE id = 2"


def steps(
    *statements: str,
    level: str = "serializable",
    error: BaseException | None = None,
    overlap: Overlap | None = None,
    **given: Any,
) -> Footprint:
    """Return what the last statement touches; the one before it fails with the error."""
    transaction = Transaction(Catalog([SEAT, TICKET]), overlap or Overlap())
    touched = LOCAL
    for number, sql in enumerate(statements):
        failed = error if number == len(statements) - 2 else None
        operation = Operation(
            alias="default",
            pid=1,
            sql=sql,
            isolation=level,
            in_transaction=number > 0,
            ends_idle=sql in {"COMMIT", "ROLLBACK"},
            error=failed,
            **given,
        )
        transaction.begin(operation)
        touched = transaction.footprint(operation)
    return touched


def test_serializable_reads_commute_until_one_has_written() -> None:
    assert not dependent(steps(READ), steps(READ))
    assert not dependent(steps(READ, READ), steps(READ))
    assert dependent(steps(WRITE, READ), steps(READ))
    assert dependent(steps(READ), steps(WRITE))
    assert dependent(steps(READ), steps(READ, "COMMIT"))


def test_a_read_that_locks_counts_as_a_write() -> None:
    assert dependent(steps(f"{READ} FOR UPDATE"), steps("SELECT price FROM seat WHERE id = 2"))


def test_a_transaction_that_may_not_write_depends_on_every_serializable_one() -> None:
    assert dependent(steps(READ, read_only=True), steps(READ))
    assert dependent(steps("SET TRANSACTION READ ONLY", READ), steps(READ))


GUARDED = "UPDATE seat SET price = 2, version = 2 WHERE id = 1 AND version = 1"


def test_an_update_that_finds_no_row_has_only_read() -> None:
    missed, hit = (steps(GUARDED, level="read committed", rows=rows) for rows in (0, 1))
    assert dependent(hit, hit)
    assert not dependent(missed, hit)
    assert not dependent(missed, missed)
    assert dependent(missed, steps(GUARDED, "COMMIT", level="read committed", rows=1))
    assert steps(GUARDED, "COMMIT", level="read committed", rows=0) == LOCAL


def test_after_a_wait_it_has_locked_the_row_although_that_no_longer_matches() -> None:
    transaction = Transaction(Catalog([SEAT]), Overlap())
    facts: dict[str, Any] = {"alias": "default", "pid": 1, "isolation": "read committed", "rows": 0}
    update = Operation(sql=GUARDED, in_transaction=False, ends_idle=False, **facts)
    transaction.begin(update)
    assert dependent(transaction.footprint(update, waited=True), steps(GUARDED, level="read committed", rows=1))
    assert transaction.footprint(Operation(sql="ROLLBACK", in_transaction=True, ends_idle=True, **facts)).releases


@pytest.mark.parametrize(
    "statement",
    [
        f"{GUARDED} AND id IN (SELECT id FROM ticket FOR UPDATE)",
        "UPDATE seat SET id = 7 WHERE id = 1 AND version = 1",
        "DELETE FROM seat WHERE id = 1",
        "SELECT id FROM seat WHERE id = 1 FOR UPDATE SKIP LOCKED",
    ],
)
def test_others_that_find_no_row_may_have_locked_one(statement: str) -> None:
    assert steps(statement, level="read committed", rows=0).locks


def test_the_rollback_after_a_failure_gives_nothing_up() -> None:
    assert steps(READ, WRITE, "ROLLBACK", error=SerializationFailure()) == LOCAL
    assert steps(READ, WRITE, "ROLLBACK").releases


def test_after_a_failure_inside_a_savepoint_the_rollback_still_gives_locks_up() -> None:
    statements = (WRITE, "SAVEPOINT s1_x1", READ, "ROLLBACK")
    assert steps(*statements, level="read committed", error=SerializationFailure()).releases


CHANGE, INSERT = "UPDATE seat SET price = 2 WHERE id = 1", "INSERT INTO ticket (price) VALUES (1)"
OTHER_READ, OTHER_CHANGE = "SELECT price FROM seat WHERE id = 3", "UPDATE seat SET price = 2 WHERE id = 3"


def blind(*before: str, overlap: Overlap | None = None) -> Footprint:
    return steps(*before, INSERT, overlap=overlap, rows=1)


@pytest.mark.parametrize("step", [READ, CHANGE, "UPDATE seat SET price = 2", "SELECT count(*) FROM seat", "COMMIT"])
def test_an_insert_behind_a_write_does_not_depend_on_those_who_read_or_want_the_written_row(step: str) -> None:
    theirs = steps(step, rows=2)

    assert dependent(steps(CHANGE, rows=1), theirs) or step == "COMMIT"
    assert dependent(blind(READ, CHANGE), theirs) is (step == "UPDATE seat SET price = 2")


@pytest.mark.parametrize(
    ("before", "theirs"),
    [
        ((), (READ,)),  # it is the first write
        ((READ,), (READ,)),
        ((READ, CHANGE), ("SELECT price FROM ticket WHERE id = 1",)),  # what it inserts is read
        ((OTHER_READ, CHANGE), (OTHER_CHANGE,)),  # what the transaction has read is written
        ((OTHER_READ, CHANGE), (OTHER_CHANGE, "COMMIT")),
        ((READ, "SAVEPOINT s1_x1", CHANGE), (READ,)),  # the change may be undone
    ],
)
def test_it_depends_on_what_may_doom_its_transaction(before: tuple[str, ...], theirs: tuple[str, ...]) -> None:
    assert dependent(blind(*before), steps(*theirs, rows=1))


@pytest.mark.parametrize(
    ("theirs", "still_blind"),
    [
        ((READ,), True),
        ((CHANGE, "COMMIT"), True),
        ((OTHER_CHANGE,), True),
        ((OTHER_CHANGE, "COMMIT"), False),
        (("SELECT price FROM ticket WHERE id = 1", "COMMIT"), False),
        (("SELECT anything()", "COMMIT"), False),
    ],
)
def test_what_others_have_done_before_counts(theirs: tuple[str, ...], still_blind: bool) -> None:
    overlap = Overlap()
    steps(*theirs, overlap=overlap, rows=1)

    assert bool(blind(READ, CHANGE, overlap=overlap).blind) is still_blind


LOCK = f"{READ} FOR UPDATE"


@pytest.mark.parametrize(
    ("ending", "published", "by_chance"),
    [
        ((LOCK, "COMMIT"), (OTHER_CHANGE, "COMMIT"), True),
        ((CHANGE, "ROLLBACK"), (OTHER_CHANGE, "COMMIT"), True),
        ((CHANGE, "COMMIT"), (OTHER_CHANGE, "COMMIT"), False),  # who waited for it is refused in any case
        ((LOCK, "COMMIT"), (OTHER_CHANGE,), False),  # nobody is there whom a pivot could conflict with
    ],
)
def test_who_is_let_go_by_one_that_wrote_nothing_may_be_refused_by_chance(
    ending: tuple[str, ...], published: tuple[str, ...], by_chance: bool
) -> None:
    overlap = Overlap()
    steps(*published, overlap=overlap, rows=1)
    end = steps(*ending, overlap=overlap, rows=1)

    assert overlap.refuses_by_chance(end, {"waiter": steps(CHANGE)}) is by_chance


LOCK, WANT = "SELECT id FROM seat WHERE id = 1 FOR NO KEY UPDATE", "SELECT id FROM seat WHERE id = 1 FOR UPDATE"


def waits_for_its_update(*before: str) -> bool:
    """Whether it matters if somebody begins to wait for the row before or after the last statement."""
    return dependent(steps(*before, level="read committed", rows=1), steps(WANT, level="read committed"))


@pytest.mark.parametrize(
    "before",
    [
        pytest.param([LOCK, CHANGE], id="locked, then changed"),
        pytest.param([CHANGE, CHANGE], id="changed twice"),
        pytest.param([WANT, LOCK], id="locked once more, and not stronger"),
        pytest.param([LOCK, "SAVEPOINT s1_x1", CHANGE], id="locked before the savepoint"),
        pytest.param([LOCK, "SAVEPOINT s1_x1", "ROLLBACK TO SAVEPOINT s1_x1", CHANGE], id="and kept by it"),
    ],
)
def test_a_lock_that_is_held_is_not_taken_again(before: list[str]) -> None:
    assert not waits_for_its_update(*before)


@pytest.mark.parametrize(
    "before",
    [
        pytest.param([CHANGE], id="not locked"),
        pytest.param([LOCK, WANT], id="stronger"),
        pytest.param([LOCK, "COMMIT", CHANGE], id="released"),
        pytest.param(["SAVEPOINT s1_x1", LOCK, "ROLLBACK TO SAVEPOINT s1_x1", CHANGE], id="released by the savepoint"),
        pytest.param([LOCK, "COMMIT AND CHAIN", CHANGE], id="released by what is not understood"),
        pytest.param(["SELECT id FROM seat WHERE id IN (1, 2) FOR UPDATE", CHANGE], id="one of two rows"),
        pytest.param(["SELECT id FROM seat WHERE price = 1 FOR UPDATE", CHANGE], id="some row"),
        pytest.param(["SELECT id FROM seat, unnest(ARRAY[1]) WHERE id = 1 FOR UPDATE", CHANGE], id="a joined row"),
        pytest.param(["SELECT 1 WHERE EXISTS (SELECT id FROM seat WHERE id = 1 FOR UPDATE)", CHANGE], id="a subquery"),
        pytest.param(["INSERT INTO seat (id) VALUES (1) ON CONFLICT DO NOTHING", CHANGE], id="inserted or not"),
    ],
)
def test_a_lock_that_may_not_be_held_counts(before: list[str]) -> None:
    assert waits_for_its_update(*before)
