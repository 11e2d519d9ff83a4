"""Verdicts that fit what ordinary code does: asserts, results, random values, empty races."""

import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.core.cache import cache
from django.db import IntegrityError, transaction
from django.db.models import F

from django_lockstep.lab.explorer import Scenario, explore, replay
from django_lockstep.lab.explorer.render.explanations import explain
from django_lockstep.lab.explorer.render.reports import RaceReport, as_text
from tests.django_lockstep.lab.explorer import stories
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)


def raised(pk: int) -> None:
    Seat.objects.filter(pk=pk).update(price=F("price") + 10)


# Errors


def sign_up() -> None:
    if not User.objects.filter(username="ada").exists():
        User.objects.create(username="ada")


def guest_of_a_seat_that_is_there(pk: int) -> None:
    with transaction.atomic():
        if Seat.objects.filter(pk=pk).exists():
            Seat.objects.filter(pk=pk).update(guest="ada")
            Seat.objects.filter(pk=pk).first().guest  # type: ignore[union-attr] # noqa: B018


def give_up(pk: int) -> None:
    Seat.objects.filter(pk=pk).delete()


def test_an_error_that_no_serial_order_raises_is_wrong_without_an_invariant() -> None:
    result = explore(Scenario(set_up=stories.one_seat, actors=[guest_of_a_seat_that_is_there, give_up]))
    assert result.verdict == "broken"
    assert "A raised AttributeError: 'NoneType' object has no attribute 'guest', which it raises in no" in result.reason


def test_so_is_a_constraint_that_the_race_alone_violates_unless_raises_names_it() -> None:
    scenario = Scenario(actors=[sign_up] * 2)
    result = explore(scenario)
    assert (result.verdict, "raised IntegrityError: duplicate key value" in result.reason) == ("broken", True)
    assert explore(scenario, raises=IntegrityError).verdict == "holds"


def test_what_an_actor_that_raises_has_left_is_compared_with_orders_without_it() -> None:
    def rebook(pk: int) -> None:
        Seat.objects.create(price=1)
        seat = Seat.objects.get(pk=pk)
        User.objects.create(username=seat.guest or "guest")

    def name_it(pk: int) -> None:
        User.objects.get_or_create(username="guest")
        Seat.objects.filter(pk=pk).update(guest="ada")

    result = explore(Scenario(set_up=stories.one_seat, actors=[rebook, name_it]))

    assert result.reason.endswith(
        "No order of A, B, one after the other, ends like this, with or without A, which raised an error: "
        "shop_seat: one row more, row=A, price=1.00, wishes=[], version=1; A raised IntegrityError (23505)"
    )


def test_an_error_of_a_serial_order_is_none() -> None:
    def take_the_only_seat(pk: int) -> None:
        Seat.objects.select_for_update().get(pk=pk).delete()

    with_lock = [transaction.atomic(take_the_only_seat)] * 2
    assert explore(Scenario(set_up=stories.one_seat, actors=with_lock)).verdict == "holds"  # DoesNotExist for one


# Invariants


def test_an_invariant_may_only_assert() -> None:
    def both_are_there(pk: int) -> None:
        assert stories.price(pk) == 120

    right = Scenario(set_up=stories.one_seat, actors=[stories.computed] * 2, invariant=both_are_there)
    wrong = Scenario(set_up=stories.one_seat, actors=[stories.naive] * 2, invariant=both_are_there)

    assert explore(right).verdict == "holds"
    result = explore(wrong)
    assert (result.verdict, "Decimal('110.00') == 120" in result.reason) == ("broken", True)


def test_without_an_invariant_a_serial_order_has_to_reach_the_end() -> None:
    result = explore(Scenario(set_up=stories.one_seat, actors=[stories.naive] * 2))

    difference = "shop_seat: price 110.00 instead of 120.00, version 2 instead of 3"
    assert [outcome.differences for outcome in result.outcomes if not outcome.holds] == [(difference,)]
    assert "one after the other" in result.reason
    assert result.reason.endswith(f"ends like this: {difference}")
    assert explore(Scenario(set_up=stories.one_seat, actors=[stories.locked] * 2)).verdict == "holds"


def test_what_an_invariant_says_is_the_same_in_every_run() -> None:
    kept: list[object] = []

    def names_an_address(pk: int) -> None:
        kept.append(object())
        assert stories.price(pk) == 120, f"{kept[-1]} is at another address each time"

    result = explore(Scenario(set_up=stories.one_seat, actors=[stories.naive] * 2, invariant=names_an_address))

    assert "<object object> is at another address each time" in result.reason


def redeem(pk: int) -> bool:
    exists = Seat.objects.filter(pk=pk).exists()
    Seat.objects.filter(pk=pk).delete()
    return exists


def test_errors_come_as_they_were_raised() -> None:
    def taken(pk: int) -> None:
        Seat.objects.bulk_create([Seat(pk=pk)])

    def refused(pk: int, results: Mapping[str, Any], errors: Mapping[str, BaseException]) -> None:
        assert isinstance(errors["A"], IntegrityError)
        assert results == {"B": None}

    scenario = Scenario(set_up=stories.one_seat, actors=[taken, stories.computed], invariant=refused)
    assert explore(scenario).verdict == "holds"


def test_what_a_loop_has_bound_is_no_argument() -> None:
    scenario = Scenario(
        set_up=stories.one_seat,
        actors=[stories.computed] * 2,
        invariant=lambda pk, times=2, by=10: stories.price(pk) == 100 + times * by,
    )

    assert explore(scenario).verdict == "holds"


@pytest.mark.slow
def test_results_that_no_order_gives_are_wrong() -> None:
    result = explore(Scenario(set_up=stories.one_seat, actors=[redeem] * 2))

    assert result.verdict == "broken"
    assert "returned True instead of False" in result.reason


@pytest.mark.slow
def test_two_successes_where_one_must_fail_are_wrong() -> None:
    def redeem_or_raise(pk: int) -> None:
        if not redeem(pk):
            raise LookupError(pk)

    assert explore(Scenario(set_up=stories.one_seat, actors=[redeem_or_raise] * 2)).verdict == "broken"


def test_keys_that_the_database_numbers_may_come_otherwise() -> None:
    def create(pk: int) -> int:
        with transaction.atomic():
            seat = Seat.objects.create(row="Z").pk
            Seat.objects.filter(pk=pk).update(price=F("price") + 1)
        return seat

    def refused_first(pk: int) -> int:
        with transaction.atomic():
            Seat.objects.create(row="Y")
            transaction.set_rollback(True)
        return create(pk)

    assert explore(Scenario(set_up=stories.one_seat, actors=[create, refused_first])).verdict == "holds"


def test_a_deadlock_may_be_wrong() -> None:
    result = explore(stories.opposite_transfers(), no_deadlock=True)

    assert result.verdict == "broken"
    assert "Deadlock of A, B" in result.reason
    assert result.failure is not None
    assert replay(stories.opposite_transfers(), result.failure.schedule, no_deadlock=True).holds is False


# Values that differ each time


def user_with_password() -> int:
    return User.objects.create_user("u", password="x", first_name="0").pk


def counted_up(pk: int) -> None:
    name = User.objects.filter(pk=pk).values_list("first_name", flat=True)[0]
    User.objects.filter(pk=pk).update(first_name=str(int(name) + 1))


def locked_and_counted_up(pk: int) -> None:
    with transaction.atomic():
        name = User.objects.select_for_update().filter(pk=pk).values_list("first_name", flat=True)[0]
        User.objects.filter(pk=pk).update(first_name=str(int(name) + 1))


@pytest.mark.parametrize("invariant", [None, lambda pk: User.objects.get(pk=pk).first_name == "2"])
def test_a_password_in_the_set_up_changes_no_verdict(invariant: Any) -> None:
    right = explore(Scenario(set_up=user_with_password, actors=[locked_and_counted_up] * 2, invariant=invariant))
    wrong = explore(Scenario(set_up=user_with_password, actors=[counted_up] * 2, invariant=invariant))

    assert (right.verdict, len(right.outcomes)) == ("holds", 1)
    assert right.not_compared == ("auth_user.password",)
    assert (wrong.verdict, len(wrong.outcomes)) == ("broken", 2)


def test_a_column_that_differs_only_in_some_schedules_is_learned_later() -> None:
    def token_where_raised(pk: int) -> None:
        if stories.price(pk) > 100:
            Seat.objects.filter(pk=pk).update(guest=uuid.uuid4().hex)

    result = explore(Scenario(set_up=stories.one_seat, actors=[token_where_raised, stories.computed]))

    assert (result.verdict, result.not_compared) == ("holds", ("shop_seat.guest",))


def test_a_replayed_schedule_does_not_compare_them_either() -> None:
    assert replay(Scenario(set_up=user_with_password, actors=[locked_and_counted_up] * 2), "").holds


def test_columns_can_be_ignored() -> None:
    ignored = ("*.version", "shop_seat.price")

    result = explore(Scenario(set_up=stories.one_seat, actors=[stories.naive] * 2), ignore=ignored)

    assert (result.verdict, result.not_compared) == ("holds", ignored)


def test_a_failure_names_keys_and_mails_that_earlier_runs_have_left() -> None:
    def remember(pk: int) -> None:
        cache.get_or_set("price", 1)
        mail.send_mail("paid", "", None, ["a@example.org"])
        stories.naive(pk)

    def failure(set_up: Callable[[], int]) -> str:
        return explore(Scenario(set_up=set_up, actors=[remember] * 2)).reason

    def without_keys() -> int:
        cache.clear()
        return stories.one_seat()

    def cleared() -> int:
        mail.outbox.clear()
        return without_keys()

    assert re.search(r"there were 1 key in locmem caches and \d+ mails in mail.outbox", failure(stories.one_seat))
    assert re.search(r"there were \d+ mails in mail.outbox", failure(without_keys))
    assert "there were" not in failure(cleared)


# Nothing was raced


def test_an_actor_that_always_raises_raced_nothing() -> None:
    def book() -> None: ...

    result = explore(Scenario(set_up=stories.one_seat, actors=[book, stories.computed]))

    assert result.verdict == "vacuous"
    assert "nothing was raced: A raised TypeError" in result.reason
    assert result.reason.endswith("takes 0 positional arguments but 1 was given in the only schedule")


def test_an_actor_that_raises_now_this_and_now_that_raced_nothing() -> None:
    def sell(pk: int) -> None:
        if not Seat.objects.filter(pk=pk, price=100).update(price=0):
            raise LookupError("sold out")
        raise ValueError("too long")

    result = explore(Scenario(set_up=stories.one_seat, actors=[sell, sell], invariant=lambda pk: True))

    assert (result.verdict, result.schedules > 1) == ("vacuous", True)
    assert result.reason.startswith("nothing was raced: A raised ")
    assert "LookupError: sold out (" in result.reason
    assert "ValueError: too long (" in result.reason


def test_why_eager_tasks_of_celery_fail_is_said() -> None:
    def call(pk: int) -> None:
        raise RuntimeError("Never call result.get() within a task! See the manual")

    result = explore(Scenario(set_up=stories.one_seat, actors=[call, stories.computed]))
    assert result.reason.endswith("; with eager tasks of Celery, leave out .get() in the actors")


def test_a_race_in_which_nobody_ever_succeeds_says_so(held: int) -> None:
    def book(pk: int) -> None:
        Seat.objects.select_for_update(nowait=True).get(pk=pk)

    result = explore(Scenario(actors=[lambda: transaction.atomic(book)(held)] * 2))

    assert result.verdict == "vacuous"
    assert result.reason.startswith("nothing was raced: no actor succeeded: they raised OperationalError: ")


def test_an_error_that_is_meant_is_none() -> None:
    def missing(pk: int) -> None:
        Seat.objects.get(pk=pk + 1)

    scenario = Scenario(set_up=stories.one_seat, actors=[missing, stories.computed])

    assert explore(scenario).verdict == "vacuous"
    assert explore(scenario, raises=Seat.DoesNotExist).verdict == "holds"
    assert explore(scenario, raises=(ValueError, Seat.DoesNotExist)).verdict == "holds"


@pytest.mark.parametrize(
    ("actors", "reason"),
    [
        ([stories.computed, lambda pk: None], "B sent no statement in the only schedule"),
        ([stories.price] * 2, "no actor wrote or locked anything"),
        ([stories.naive], "A is the only actor"),
    ],
)
def test_actors_that_race_nothing(actors: list[Any], reason: str) -> None:
    result = explore(Scenario(set_up=stories.one_seat, actors=actors))

    assert (result.verdict, result.reason) == ("vacuous", f"nothing was raced: {reason}")


def test_a_serial_order_that_is_wrong_is_said_to_be_one() -> None:
    def overwrite(pk: int) -> None:
        Seat.objects.filter(pk=pk).update(price=5)

    wrong = Scenario(set_up=stories.one_seat, actors=[overwrite] * 2, invariant=lambda pk: stories.price(pk) == 120)
    failure = explore(wrong).failure
    assert failure is not None
    assert explain(failure) == (
        "no race is needed: A, B, one after the other, end so: the invariant, the set-up or the code is wrong"
    )


# States


def test_the_end_holds_the_rows_that_differ_from_those_that_were_there() -> None:
    Seat.objects.create(guest="somebody else", price=1)
    leaving = Seat.objects.create(guest="leaving", price=2)

    def leave(pk: int) -> None:
        Seat.objects.filter(pk=leaving.pk).delete()

    (outcome,) = explore(Scenario(set_up=stories.one_seat, actors=[stories.computed, leave])).outcomes

    assert isinstance(outcome.state, dict)
    assert {table: [row["price"] for row in rows] for table, rows in outcome.state.items()} == {
        "shop_seat": ["110.00"],
        "shop_seat, removed": ["2.00"],
    }


def raise_all(pks: list[int]) -> None:
    with transaction.atomic():
        Seat.objects.filter(price__gt=0).update(price=F("price") + 10)


def raise_in_order(pks: list[int]) -> None:
    with transaction.atomic():
        for seat in Seat.objects.filter(price__gt=0).order_by("pk").select_for_update():
            Seat.objects.filter(pk=seat.pk).update(price=seat.price + 10)


def raised_first(pks: list[int]) -> None:
    raised(pks[0])


@pytest.mark.parametrize(
    ("actors", "no_deadlock", "verdict", "said"),
    [
        ([raise_all, raise_all], False, "holds", True),
        ([raise_all, raise_all], True, "incomplete", True),
        ([raise_all, raise_in_order], True, "incomplete", True),
        ([raise_all, raised_first], True, "holds", False),
        ([raise_in_order, raise_in_order], True, "holds", False),
    ],
)
def test_two_statements_that_lock_several_rows_in_the_servers_order_are_named(
    actors: list[Any], no_deadlock: bool, verdict: str, said: bool
) -> None:
    race = explore(Scenario(set_up=stories.two_seats, actors=actors, invariant=bool), no_deadlock=no_deadlock)

    assert race.verdict == verdict, race.reason
    told = "locks several rows of shop_seat in one statement, in an order that the server chooses"
    assert (told in race.reason) is (told in as_text([RaceReport(name="seats", exploration=race)])) is said
