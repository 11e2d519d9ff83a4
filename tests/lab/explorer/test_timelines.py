"""Runs as people read them."""

import pytest
from django.db import transaction
from django.db.models import F

from accounts.lab.explorer import Scenario, explain, explore, replay, timeline
from tests.lab.explorer import stories
from tests.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_lost_update_is_drawn_and_named() -> None:
    failure = explore(stories.raising(stories.naive)).failure
    assert failure is not None

    drawn = timeline(failure).splitlines()

    assert drawn[0] == "schedule AABBAB, WRONG"
    assert drawn[1].split() == ["step", "A", "B"]
    assert "SELECT shop_seat" in drawn[3]
    assert "price=100.00" in drawn[3]
    assert drawn[6][4:].startswith(" " * 40), "B's column is to the right of A's"
    assert drawn[-1].startswith("lost update: ")


def test_waits_say_for_whom_and_who_ended_them() -> None:
    drawn = timeline(replay(stories.raising(stories.locked), "ABAA"), width=80)

    assert "… waits for A on shop_seat id=" in drawn
    assert "… woken by A -> price=110.00" in drawn


def test_a_deadlock_is_named_with_its_victim() -> None:
    run = replay(stories.opposite_transfers(), "ABAB")

    assert explain(run) == "deadlock: A, B waited for each other; the server ended B's transaction"
    assert "-> error 40P01" in timeline(run, width=80)


def withdraw_if_covered(index: int) -> stories.Step:
    def withdraw(pks: list[int]) -> None:
        with transaction.atomic():
            if sum(Seat.objects.values_list("price", flat=True)) >= 150:
                Seat.objects.filter(pk=pks[index]).update(price=F("price") - 150)

    return withdraw


def total_is_not_negative(pks: list[int]) -> bool:
    return sum(Seat.objects.values_list("price", flat=True)) >= 0


def test_write_skew_is_named() -> None:
    scenario = Scenario(
        set_up=stories.two_seats,
        actors=[withdraw_if_covered(0), withdraw_if_covered(1)],
        invariant=total_is_not_negative,
    )

    failure = explore(scenario).failure

    assert failure is not None
    assert explain(failure).startswith("write skew: A and B each read shop_seat")


def book(pks: list[int]) -> None:
    if not Seat.objects.filter(guest="Ada").exists():
        Seat.objects.create(guest="Ada")


def test_a_duplicate_insert_is_named() -> None:
    scenario = Scenario(
        set_up=stories.two_seats,
        actors=[book, book],
        invariant=lambda pks: Seat.objects.filter(guest="Ada").count() == 1,
    )

    failure = explore(scenario).failure

    assert failure is not None
    assert explain(failure).startswith("duplicate insert: ")


def read_twice(pk: int) -> bool:
    with transaction.atomic():
        return stories.price(pk) == stories.price(pk)


def test_a_non_repeatable_read_is_named() -> None:
    scenario = Scenario(set_up=stories.one_seat, actors=[read_twice, stories.computed], invariant=lambda pk: False)

    assert explain(replay(scenario, "ABBA")).startswith("non-repeatable read: A read shop_seat at steps 1 and 4")


def test_what_is_no_known_anomaly_is_not_given_a_name() -> None:
    scenario = Scenario(set_up=stories.one_seat, actors=[stories.computed], invariant=lambda pk: False)

    assert explain(replay(scenario, "")) == "unexplained"
