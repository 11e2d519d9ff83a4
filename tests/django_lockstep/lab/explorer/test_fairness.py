"""Who has to yield, and until when."""

from typing import Any

from psycopg.errors import LockNotAvailable

from django_lockstep.lab.explorer.effects import Statement
from django_lockstep.lab.explorer.fairness import _MOST_REFUSALS, FairScheduler
from django_lockstep.lab.explorer.footprints import LockedKey, Mode
from django_lockstep.lab.explorer.operations import ASLEEP, Operation

A, B, C = 0, 1, 2
WANTED: frozenset[LockedKey] = frozenset({(("seat", 1), Mode.UPDATE)})
OTHER: frozenset[LockedKey] = frozenset({(("seat", 2), Mode.UPDATE)})


def sent(sql: str = "SELECT 1", *, refused: bool = False) -> Operation:
    return Operation(alias="default", pid=1, sql=sql, error=LockNotAvailable() if refused else None)


def rolled_back() -> Operation:
    operation = sent("ROLLBACK")
    operation.statement = Statement(kind="ROLLBACK")
    return operation


def refuse_in_turn(scheduler: FairScheduler, times: int) -> None:
    """A and B are refused, one after the other, each a lock of its own."""
    for _ in range(times):
        scheduler.note(A, sent("LOCK A", refused=True), wanted=WANTED, released=OTHER)
        scheduler.note(B, sent("LOCK B", refused=True), wanted=OTHER)


def test_an_actor_that_is_refused_twice_yields_until_another_one_moves() -> None:
    scheduler = FairScheduler()
    again = [scheduler.note(A, sent(refused=True), wanted=WANTED) for _ in range(2)]
    assert again == [False, True]
    assert scheduler.enabled([A, B]) == {B}
    scheduler.note(B, sent())
    assert scheduler.enabled([A, B]) == {A, B}


def test_one_that_is_refused_very_often_waits_for_the_lock_to_be_released() -> None:
    scheduler = FairScheduler()
    refuse_in_turn(scheduler, _MOST_REFUSALS - 1)
    assert scheduler.enabled([A, B, C]) >= {B, C}
    refuse_in_turn(scheduler, 1)
    assert scheduler.enabled([A, B, C]) == {C}

    scheduler.note(C, sent("COMMIT"), released=WANTED)
    assert scheduler.enabled([A, B, C]) == {A, C}
    refuse_in_turn(scheduler, 2)
    scheduler.note(C, sent())
    assert A in scheduler.enabled([A, B, C])  # it is counted from the beginning


def test_where_nobody_else_is_left_it_goes_on() -> None:
    scheduler = FairScheduler()
    refuse_in_turn(scheduler, _MOST_REFUSALS)
    assert scheduler.enabled([A, B])


def test_two_that_need_the_lock_of_a_third_one_do_not_wake_each_other() -> None:
    scheduler = FairScheduler()
    for _ in range(2):
        for actor in (A, B):
            scheduler.note(actor, sent("SELECT ... NOWAIT", refused=True), wanted=WANTED)
            scheduler.note(actor, rolled_back())
    assert scheduler.enabled([A, B, C]) == {C}

    scheduler.note(C, sent("COMMIT"), released=WANTED)
    assert scheduler.enabled([A, B]) == {A, B}


def test_a_rollback_that_releases_locks_wakes_those_that_yield() -> None:
    scheduler = FairScheduler()
    for _ in range(2):
        scheduler.note(A, sent(refused=True), wanted=WANTED)
    scheduler.note(B, rolled_back(), released=WANTED)
    assert scheduler.enabled([A, B]) == {A, B}


def test_one_that_sleeps_is_woken_by_any_move() -> None:
    scheduler = FairScheduler()
    scheduler.note(A, sent(ASLEEP))
    assert scheduler.enabled([A, B]) == {B}
    scheduler.note(B, sent(refused=True), wanted=WANTED)
    assert scheduler.enabled([A, B]) == {A, B}


def test_locks_that_are_not_known_are_never_waited_for() -> None:
    scheduler = FairScheduler()
    facts: dict[str, Any] = {"wanted": frozenset()}
    for _ in range(2 * _MOST_REFUSALS):
        scheduler.note(A, sent(refused=True), **facts)
        scheduler.note(B, sent())
    assert scheduler.enabled([A, B]) == {A, B}
