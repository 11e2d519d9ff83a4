"""Who has to yield, and until when."""

from typing import Any

from psycopg.errors import LockNotAvailable

from django_lockstep.lab.explorer.fairness import _MOST_REFUSALS, FairScheduler
from django_lockstep.lab.explorer.footprints import LockedKey, Mode
from django_lockstep.lab.explorer.operations import Operation

A, B, C = 0, 1, 2
WANTED: frozenset[LockedKey] = frozenset({(("seat", 1), Mode.UPDATE)})
OTHER: frozenset[LockedKey] = frozenset({(("seat", 2), Mode.UPDATE)})


def sent(sql: str = "SELECT 1", *, refused: bool = False) -> Operation:
    return Operation(alias="default", pid=1, sql=sql, error=LockNotAvailable() if refused else None)


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
    assert scheduler.enabled([A, B, C]) >= {A, C}
    refuse_in_turn(scheduler, 1)
    assert scheduler.enabled([A, B, C]) == {C}

    scheduler.note(C, sent("COMMIT"), released=WANTED)
    assert scheduler.enabled([A, B, C]) == {A, C}
    refuse_in_turn(scheduler, 2)
    assert A in scheduler.enabled([A, B, C])  # it is counted from the beginning


def test_where_nobody_else_is_left_it_goes_on() -> None:
    scheduler = FairScheduler()
    refuse_in_turn(scheduler, _MOST_REFUSALS)
    assert scheduler.enabled([A, B]) >= {A}


def test_locks_that_are_not_known_are_never_waited_for() -> None:
    scheduler = FairScheduler()
    facts: dict[str, Any] = {"wanted": frozenset()}
    for _ in range(2 * _MOST_REFUSALS):
        scheduler.note(A, sent(refused=True), **facts)
        scheduler.note(B, sent())
    assert scheduler.enabled([A, B]) == {A, B}
