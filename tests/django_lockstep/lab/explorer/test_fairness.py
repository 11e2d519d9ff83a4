"""Who has to yield, and until when."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from django.db import OperationalError, transaction
from psycopg.errors import LockNotAvailable

from django_lockstep.lab.explorer import Exploration, Scenario, explore
from django_lockstep.lab.explorer.effects.footprints import OPAQUE, Mode, lock
from django_lockstep.lab.explorer.effects.operations import Operation
from django_lockstep.lab.explorer.effects.statements import Statement
from django_lockstep.lab.explorer.search.fairness import _MOST_REFUSALS, FairScheduler
from tests.django_lockstep.lab.explorer import stories
from tests.django_lockstep.lab.explorer.programs import ends
from tests.testapps.shop.models import Seat

A, B, C = 0, 1, 2
WANTED, OTHER = (lock("try", {(("seat", row), Mode.UPDATE)}) for row in (1, 2))
UNLOCKED, OTHER_UNLOCKED = (lock("release", {(("seat", row), Mode.UPDATE)}) for row in (1, 2))


def sent(sql: str = "SELECT 1", *, refused: bool = False) -> Operation:
    return Operation(alias="default", pid=1, sql=sql, error=LockNotAvailable() if refused else None)


def able(scheduler: FairScheduler, *actors: int, sql: str = "SELECT 1") -> set[int]:
    """Return which of them may move if this is what each one sends next."""
    return scheduler.enabled({actor: sent(sql) for actor in actors})


def rolled_back() -> Operation:
    return replace(sent("ROLLBACK"), statement=Statement(kind="ROLLBACK"))


def refuse_in_turn(scheduler: FairScheduler, times: int) -> None:
    """A and B are refused, one after the other, each a lock of its own."""
    for _ in range(times):
        scheduler.note(A, sent("LOCK A", refused=True), tried=WANTED, released=OTHER_UNLOCKED)
        scheduler.note(B, sent("LOCK B", refused=True), tried=OTHER)


LOOP = "SELECT ... NOWAIT"


def test_what_is_not_understood_may_release_any_lock() -> None:
    scheduler = FairScheduler({LOOP})
    assert [scheduler.note(A, sent(LOOP, refused=True), tried=WANTED) for _ in range(2)] == [False, True]
    scheduler.note(B, sent("CALL unknown()"), released=OPAQUE)
    assert able(scheduler, A, B, sql=LOOP) == {A, B}


def test_one_that_is_refused_very_often_waits_for_the_lock_to_be_released() -> None:
    scheduler = FairScheduler({"LOCK A", "LOCK B"})
    refuse_in_turn(scheduler, _MOST_REFUSALS - 1)
    assert able(scheduler, A, B, C) >= {B, C}
    refuse_in_turn(scheduler, 1)
    assert able(scheduler, A, B, C) == {C}

    scheduler.note(C, sent("COMMIT"), released=UNLOCKED)
    assert able(scheduler, A, B, C) == {A, C}
    refuse_in_turn(scheduler, 2)
    scheduler.note(C, sent())
    assert A in able(scheduler, A, B, C)  # it is counted from the beginning


def test_two_that_need_the_lock_of_a_third_one_wait_for_its_unlock() -> None:
    scheduler = FairScheduler({LOOP})
    for _ in range(2):
        for actor in (A, B):
            scheduler.note(actor, sent(LOOP, refused=True), tried=WANTED)
            scheduler.note(actor, rolled_back())
    assert able(scheduler, A, B, C, sql=LOOP) == {C}

    scheduler.note(C, rolled_back(), released=UNLOCKED)
    assert able(scheduler, A, B, sql=LOOP) == {A, B}


def test_a_loop_that_is_refused_twice_does_not_ask_again_before_an_unlock() -> None:
    scheduler = FairScheduler({LOOP})
    assert [scheduler.note(A, sent(LOOP, refused=True), tried=WANTED) for _ in range(2)] == [False, True]
    assert able(scheduler, A, B, sql=LOOP) == {B}
    scheduler.note(B, sent("UPDATE"))
    scheduler.note(A, sent("COMMIT"), released=UNLOCKED)
    scheduler.note(B, sent("COMMIT"), released=OTHER_UNLOCKED)
    assert able(scheduler, A, B, sql=LOOP) == {B}

    scheduler.note(B, sent("COMMIT"), released=UNLOCKED)
    assert able(scheduler, A, B, sql=LOOP) == {A, B}


def test_a_loop_over_several_locks_is_refused_each_of_them() -> None:
    scheduler = FairScheduler({LOOP})
    for wanted in (WANTED, OTHER, WANTED):
        scheduler.note(A, replace(sent(LOOP, refused=True), params=[str(wanted)]), tried=wanted)
    asking = [replace(sent(LOOP), params=[str(wanted)]) for wanted in (WANTED, OTHER)]
    assert [scheduler.enabled({A: operation, B: sent()}) for operation in asking] == [{B}, {A, B}]


def test_who_polls_is_not_woken_by_one_that_is_refused() -> None:
    scheduler = FairScheduler({"SELECT 1"})
    assert [scheduler.note(A, replace(sent(), statement=Statement(kind="SELECT"), rows=0)) for _ in range(3)] == [
        False,
        False,
        True,
    ]
    scheduler.note(B, sent(LOOP, refused=True), tried=WANTED)
    scheduler.note(B, rolled_back())
    assert able(scheduler, A, B) == {B}
    scheduler.note(B, sent("UPDATE"))
    assert able(scheduler, A, B) == {A, B}


# On the server


def nowait(pk: int) -> None:
    with transaction.atomic():
        seat = Seat.objects.select_for_update(nowait=True).get(pk=pk)
        Seat.objects.filter(pk=pk).update(price=seat.price + 10)


def until_it_has_the_lock(pk: int) -> None:
    while True:
        with suppress(OperationalError):
            return nowait(pk)


def three_times(pk: int) -> str:
    for _ in range(3):
        with suppress(OperationalError):
            nowait(pk)
            return "done"
    raise LookupError("gave up")


def among(actor: stories.Actor, *, actors: int, **options: Any) -> Exploration:
    scenario = Scenario(set_up=stories.one_seat, actors=[actor] * actors, invariant=bool, observe=stories.price)
    return explore(scenario, **options)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("actors", [2, 3])
def test_loops_that_try_again_without_end_all_get_the_lock_in_the_end(actors: int) -> None:
    result = among(until_it_has_the_lock, actors=actors)

    assert (result.verdict, result.reason[:25]) == ("holds", "Every fair interleaving w")
    assert [outcome.state for outcome in result.outcomes] == [f"{100 + 10 * actors}.00"]
    assert result.schedules <= {2: 12, 3: 200}[actors]


@pytest.mark.django_db(transaction=True)
def test_those_that_give_up_are_seen_to_give_up() -> None:
    reduced, full = (among(three_times, actors=2, reduction=how) for how in ("dpor", "none"))

    assert "fair" not in reduced.reason
    assert ends(reduced) == ends(full)
    assert {tuple(outcome.errors.items()) for outcome in reduced.outcomes} == {
        (),
        (("A", "LookupError"),),
        (("B", "LookupError"),),
    }
