"""What the steps of a transaction touch, without a database."""

from dataclasses import replace
from typing import Any

import pytest
from psycopg.errors import SerializationFailure

from django_lockstep.lab.explorer.effects.catalog import Catalog, ForeignKey, TableFacts
from django_lockstep.lab.explorer.effects.footprints import LOCAL, Footprint, dependent, only
from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.effects.serializable import Commits
from django_lockstep.lab.explorer.effects.transactions import Transaction

SEAT = TableFacts(name="seat", pk="id", unique=frozenset({"id"}))
TICKET = replace(SEAT, name="ticket")
STUB = replace(TICKET, name="stub", foreign_keys=frozenset({ForeignKey(parent="seat", columns=("seat_id",))}))
READ, WRITE = "SELECT price FROM seat WHERE id = 1", "UPDATE seat SET price = 2 WHERE id = 2"


class Session:
    """Sends statements one by one; with the same commits, sessions are of one run."""

    def __init__(self, commits: Commits, *, level: str = "serializable", **options: Any) -> None:
        self._given = {"alias": "default", "pid": 1, "autocommit": False, "isolation": level, **options}
        catalog = Catalog([SEAT, TICKET, STUB])
        self._transaction = Transaction(catalog, commits)
        self._open = False

    def send(self, *statements: str, rows: int | None = 1, error: BaseException | None = None) -> Footprint:
        """Return what the last one touches, which fails with the error."""
        touched = LOCAL
        for number, sql in enumerate(statements, 1):
            failed = error if number == len(statements) else None
            ends = sql in {"COMMIT", "ROLLBACK"}
            operation = Operation(
                sql=sql, in_transaction=self._open, ends_idle=ends, rows=rows, error=failed, **self._given
            )
            self._transaction.begin(operation)
            touched = self._transaction.footprint(operation)
            self._open = not ends
        return touched


def steps(
    *statements: str,
    level: str = "serializable",
    rows: int | None = None,
    error: BaseException | None = None,
    read_only: bool = False,
) -> Footprint:
    """Return what the last statement touches; the one before it fails with the error."""
    session = Session(Commits(), level=level, read_only=read_only)
    if error is not None:
        session.send(*statements[:-1], rows=rows, error=error)
        statements = statements[-1:]
    return session.send(*statements, rows=rows)


CHANGE, INSERT = "UPDATE seat SET price = 2 WHERE id = 1", "INSERT INTO ticket (price) VALUES (1)"
OTHER_CHANGE = "UPDATE seat SET price = 2 WHERE id = 3"
ADDED = "INSERT INTO seat (price) VALUES (2)"

THREE_READS = [READ, "SELECT price FROM seat WHERE id = 5", "SELECT price FROM seat WHERE id = 6"]


@pytest.mark.parametrize(
    ("first", "second", "matters"),
    [
        ([READ], [READ], False),
        ([READ], ["SELECT count(*) FROM seat"], False),
        ([READ], [CHANGE], False),  # a conflict in both orders
        ([READ], [OTHER_CHANGE], False),
        ([READ], [ADDED], True),  # the later one finds the lock of an index page
        (["SELECT price FROM seat WHERE id = 1 AND row = 'A'"], [OTHER_CHANGE], True),  # maybe found by that index
        (["SELECT price FROM seat WHERE id = 1 ORDER BY row"], [OTHER_CHANGE], True),
        (["SELECT max(row) FROM seat WHERE id = 1"], [OTHER_CHANGE], True),
        (["SELECT price FROM seat WHERE id = 1 ORDER BY id LIMIT 21"], [OTHER_CHANGE], False),
        (THREE_READS[:2], [OTHER_CHANGE], False),
        (THREE_READS, [OTHER_CHANGE], True),  # now the page is locked
        (["SELECT count(*) FROM seat"], [CHANGE], True),
        (["SELECT price FROM ticket WHERE id = 1"], [CHANGE], False),
        (["SELECT price FROM ticket WHERE id = 1"], [INSERT], True),
        ([CHANGE], [OTHER_CHANGE], False),
        ([CHANGE], [ADDED], True),  # it reads, too
        ([READ, INSERT], [READ], False),
        ([READ], [READ, "COMMIT"], False),
        ([CHANGE, READ], [READ, "COMMIT"], False),
        ([READ], [READ, "ROLLBACK"], False),
        ([READ], [CHANGE, "ROLLBACK"], False),
        ([READ, INSERT], [CHANGE, "COMMIT"], True),  # who has written is in danger once the table has changed
        ([READ, "COMMIT"], [READ, "COMMIT"], False),
        ([READ, "COMMIT"], [CHANGE, "COMMIT"], True),  # who ends first decides whether a third one is refused
        ([READ, "ROLLBACK"], [CHANGE, "COMMIT"], True),
        ([READ, INSERT, "COMMIT"], [ADDED, "COMMIT"], True),
        ([*THREE_READS, INSERT, "COMMIT"], [OTHER_CHANGE, "COMMIT"], True),
    ],
)
def test_of_overlapping_serializable_steps_the_order_matters(
    first: list[str], second: list[str], matters: bool
) -> None:
    commits = Commits()
    mine, theirs = Session(commits).send("SELECT 1", *first), Session(commits).send("SELECT 1", *second)

    assert dependent(mine, theirs) is dependent(theirs, mine) is matters


@pytest.mark.parametrize(("other", "matters"), [(ADDED, True), (OTHER_CHANGE, False)])
def test_a_commit_that_checks_a_foreign_key_reads_the_row_that_is_referred_to(other: str, matters: bool) -> None:
    commits = Commits()
    session = Session(commits)
    session.send("SELECT 1")
    commit = Session(commits).send("INSERT INTO stub (seat_id) VALUES (1)", "COMMIT")

    assert dependent(commit, session.send(other)) is matters


@pytest.mark.parametrize(
    ("level", "matters"), [("read committed", False), ("repeatable read", True), ("serializable", True)]
)
def test_the_step_that_takes_a_snapshot_depends_on_every_commit_of_a_change(level: str, matters: bool) -> None:
    commit = steps(OTHER_CHANGE, "COMMIT", rows=1)
    session = Session(Commits(), level=level)

    assert dependent(session.send(READ), commit) is matters
    assert not dependent(session.send(READ), commit)


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
    transaction = Transaction(Catalog([SEAT]), Commits())
    options: dict[str, Any] = {"alias": "default", "pid": 1, "isolation": "read committed", "rows": 0}
    update = Operation(sql=GUARDED, autocommit=False, ends_idle=False, **options)
    transaction.begin(update)
    assert dependent(transaction.footprint(update, waited=True), steps(GUARDED, level="read committed", rows=1))
    end = transaction.footprint(Operation(sql="COMMIT", in_transaction=True, ends_idle=True, **options))
    assert only({"release"}, end)
    assert not only({"publish"}, end), "it has locked the row, and changed nothing"


def test_after_a_wait_one_that_commits_by_itself_would_have_published_its_change() -> None:
    transaction = Transaction(Catalog([SEAT]), Commits())
    update = Operation(alias="default", pid=1, sql=GUARDED, isolation="read committed", rows=0)
    transaction.begin(update)
    assert only({"publish"}, transaction.footprint(update, waited=True))


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
    assert only({"lock"}, steps(statement, level="read committed", rows=0))


def test_the_rollback_after_a_failure_gives_nothing_up() -> None:
    assert steps(READ, WRITE, "ROLLBACK", error=SerializationFailure()) == LOCAL
    assert only({"release"}, steps(READ, WRITE, "ROLLBACK"))


def test_after_a_failure_inside_a_savepoint_the_rollback_still_gives_locks_up() -> None:
    statements = (WRITE, "SAVEPOINT s1_x1", READ, "ROLLBACK")
    assert only({"release"}, steps(*statements, level="read committed", error=SerializationFailure()))


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
