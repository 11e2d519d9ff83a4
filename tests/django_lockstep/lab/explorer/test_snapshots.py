"""On which commits the snapshot of a transaction depends, without a database."""

from typing import Any

import pytest

from django_lockstep.lab.explorer.footprints import EVERYTHING, Footprint, dependent
from django_lockstep.lab.explorer.overlap import Overlap
from tests.django_lockstep.lab.explorer.sessions import (
    CHANGE,
    INSERT,
    OTHER_CHANGE,
    OTHER_READ,
    READ,
    Session,
    steps,
)


def first_step(*statements: str, level: str = "repeatable read", rows: int | None = 1, **given: Any) -> Footprint:
    """Return what the first step of a transaction touches of which it is known what it does afterwards."""
    session = Session(Overlap(), level=level, **given)
    session.send("SELECT 1", *statements, rows=rows)
    if statements[-1] not in {"COMMIT", "ROLLBACK"}:
        session.send("ROLLBACK")
    return session.send("SELECT 1")


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize(
    ("later", "committed", "matters"),
    [
        ([READ], CHANGE, True),
        ([READ], OTHER_CHANGE, False),
        ([READ, OTHER_READ], OTHER_CHANGE, True),
        ([f"{READ} FOR SHARE"], CHANGE, True),
        ([CHANGE], CHANGE, True),
        ([CHANGE], OTHER_CHANGE, False),
        ([CHANGE, "COMMIT"], OTHER_CHANGE, False),
        ([CHANGE, "ROLLBACK"], OTHER_CHANGE, False),
        (["SELECT count(*) FROM seat"], OTHER_CHANGE, True),
        (["INSERT INTO stub (seat_id) VALUES (1)"], CHANGE, True),
        (["INSERT INTO stub (seat_id) VALUES (1)"], OTHER_CHANGE, False),
        ([INSERT], INSERT, False),  # whether there is such a key does not depend on a snapshot
        ([f"{INSERT} ON CONFLICT DO NOTHING"], INSERT, True),
        (["SELECT anything()"], OTHER_CHANGE, True),
    ],
)
def test_a_snapshot_depends_on_the_commits_of_what_the_transaction_comes_to(
    later: list[str], committed: str, matters: bool, level: str
) -> None:
    commit = steps(committed, "COMMIT", level="repeatable read", rows=1)

    assert dependent(first_step(*later, level=level), commit) is matters


@pytest.mark.parametrize("change", [CHANGE, "DELETE FROM seat WHERE id = 1", INSERT])
@pytest.mark.parametrize(
    ("rows", "around", "matters"), [(1, [], False), (0, [], True), (1, ["SAVEPOINT s1_x1"], True), (None, [], True)]
)
def test_the_snapshot_of_one_that_may_commit_without_a_change_depends_on_every_commit(
    change: str, rows: int | None, around: list[str], matters: bool
) -> None:
    commit = steps("UPDATE stub SET price = 2 WHERE id = 1", "COMMIT", rows=1)

    assert dependent(first_step(*around, change, "COMMIT", level="serializable", rows=rows), commit) is matters
    assert not dependent(first_step(*around, change, "COMMIT", rows=rows), commit)


def test_the_snapshot_of_a_read_only_transaction_depends_on_every_commit() -> None:
    commit = steps(OTHER_CHANGE, "COMMIT", rows=1)

    assert dependent(first_step(READ, level="serializable", read_only=True), commit)
    assert not dependent(first_step(READ, level="repeatable read", read_only=True), commit)


def test_a_snapshot_depends_on_the_commit_of_one_that_has_read_what_the_transaction_changes() -> None:
    reads, reads_other = (steps(read, INSERT, "COMMIT", rows=1) for read in (READ, OTHER_READ))
    snapshot = first_step(CHANGE, level="serializable")

    assert dependent(snapshot, reads)
    assert not dependent(snapshot, reads_other)


def test_at_read_committed_nothing_is_to_be_learned() -> None:
    session = Session(Overlap(), level="read committed")
    session.send(READ, CHANGE, "COMMIT")

    assert not session.reach.facts


@pytest.mark.parametrize("level", ["read committed", "serializable"])
def test_of_what_is_not_understood_it_is_not_known_what_it_comes_to(level: str) -> None:
    session = Session(Overlap(), level=level)
    session.send("SELECT anything()")

    assert session.reach.seen_by(0) == session.reach.written_by(0) == {EVERYTHING}
