"""What went wrong in a run, in a sentence; each from a real run."""

import pickle
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import F

from django_lockstep.lab.explorer import Scenario, explain, explore, replay, timeline
from django_lockstep.lab.explorer.render.explanations import find_explanation
from django_lockstep.locking.transactions import isolated_transaction
from tests.django_lockstep.lab.explorer import stories
from tests.testapps.press.models import Author
from tests.testapps.seeded_shop.racing.models import Decision, Expense
from tests.testapps.shop.models import PlainSeat, Seat

pytestmark = pytest.mark.django_db(transaction=True)


def never(fixture: Any) -> bool:
    return False


def race(*actors: stories.Actor, set_up: Any = stories.one_seat) -> Scenario:
    """A race whose every end counts as wrong, so that each has to be explained."""
    return Scenario(set_up=set_up, actors=actors, invariant=never)


def write_half(pk: int) -> None:
    with transaction.atomic():
        value = stories.price(pk)
        Seat.objects.filter(pk=pk).update(price=value / 2)


def test_a_lost_update_names_the_writer_the_value_and_its_source() -> None:
    run = replay(race(stories.naive, write_half), "ABBBAA")

    assert explain(run).removesuffix(" (steps 1 and 5)") == (
        "lost update: A wrote price 110.00 computed from 100.00, which B had changed to 50.00 in between"
    )
    assert "▲ here it breaks" in timeline(pickle.loads(pickle.dumps(run)))  # noqa: S301 - a copy, as pages have it


def test_nothing_is_computed_to_null() -> None:
    def forget(pk: int) -> None:
        user = User.objects.get(pk=pk)
        user.last_login = None
        user.save(update_fields=["last_login"])

    def log_in(pk: int) -> None:
        User.objects.filter(pk=pk).update(last_login=datetime(2020, 2, 2, tzinfo=UTC))

    def set_up() -> int:
        return User.objects.create(username="ada", last_login=datetime(2020, 1, 1, tzinfo=UTC)).pk

    result = explain(replay(race(forget, log_in, set_up=set_up), "ABA"))

    assert result.removesuffix(" (steps 1 and 3)") == (
        "lost update: A wrote last_login NULL in place of 2020-01-01 00:00:00+00:00, which B had changed to 2020-02-02 "
        "00:00:00+00:00 in between"
    )


def test_nor_from_null() -> None:
    def number(code: int) -> stories.Actor:
        def actor(pk: int) -> None:
            if Author.objects.get(pk=pk).code is None:
                Author.objects.filter(pk=pk).update(code=code)

        return actor

    scenario = race(number(7), number(8), set_up=lambda: Author.objects.create().pk)

    assert explain(replay(scenario, "ABBA")).removesuffix(" (steps 1 and 4)") == (
        "lost update: A wrote code 7 in place of NULL, which B had changed to 8 in between"
    )


def test_a_lost_update_of_an_expression_says_the_expression() -> None:
    result = explain(replay(race(stories.naive, stories.computed), "ABBAA"))

    assert result.endswith("computed from 100.00, which B had changed (price = price + 10) in between (steps 1 and 4)")


def take_where_covered(pk: int) -> None:
    stories.price(pk)
    Seat.objects.filter(pk=pk, price__gte=60).update(price=F("price") - 60)


def test_a_check_in_the_update_is_not_stale() -> None:
    assert explain(replay(race(take_where_covered, take_where_covered), "ABBA")) == "unexplained"


def rename(pk: int) -> None:
    Seat.objects.filter(pk=pk).update(guest="Ada")


def save_all_fields(pk: int) -> None:
    seat = Seat.objects.get(pk=pk)
    Seat.objects.filter(pk=pk).update(guest=seat.guest, price=seat.price + 10)


def test_a_write_of_fields_that_were_not_meant_is_a_lost_update() -> None:
    result = explain(replay(race(save_all_fields, rename), "ABA"))

    assert (
        result
        == "lost update: A wrote guest '' as it had read it, which B had changed to Ada in between (steps 1 and 3)"
    )


def read_twice(pk: int) -> Any:
    with transaction.atomic():
        return stories.price(pk), stories.price(pk)


def test_a_non_repeatable_read_says_both_values() -> None:
    assert explain(replay(race(read_twice, stories.computed), "ABBA")) == (
        "non-repeatable read: A read price 100.00 at step 1 and 110.00 at step 4 of one transaction, because B had "
        "changed it in between"
    )


def test_reads_of_two_transactions_may_differ() -> None:
    def read_and_read_again(pk: int) -> None:
        stories.price(pk)
        stories.price(pk)

    assert explain(replay(race(read_and_read_again, stories.computed), "ABBA")) == "unexplained"


def test_reads_on_both_sides_of_ones_own_write_may_differ() -> None:
    def look_write_look(pk: int) -> None:
        with transaction.atomic():
            stories.price(pk)
            Seat.objects.filter(pk=pk).update(price=F("price") + 1)
            stories.price(pk)

    result = explain(replay(race(look_write_look, stories.computed), "ABBAA"))

    assert not result.startswith("non-repeatable read")


def count_twice(pk: int) -> Any:
    with transaction.atomic():
        return [Seat.objects.filter(row="Z").count() for _ in range(2)]


def add_seat(pk: int) -> None:
    Seat.objects.create(row="Z")


def test_a_phantom_says_what_was_searched_and_found() -> None:
    assert explain(replay(race(count_twice, add_seat), "ABA")) == (
        "phantom: A looked for shop_seat row = Z twice in one transaction and found __count 0 at step 1 and __count 1 "
        "at step 3, because B had inserted a row in between"
    )


def test_repeatable_read_shows_no_phantom() -> None:
    def look(pk: int) -> None:
        with isolated_transaction(isolation_level="repeatable read"):
            for _ in range(2):
                list(Seat.objects.filter(row="Z"))

    assert explain(replay(race(look, add_seat), "AABA")) == "unexplained"


def book(pks: list[int]) -> None:
    if not Seat.objects.filter(guest="Ada").exists():
        Seat.objects.create(guest="Ada")


def test_rows_of_two_guests_are_no_duplicate() -> None:
    def book_for_grace(pks: list[int]) -> None:
        if not Seat.objects.filter(guest="Grace").exists():
            Seat.objects.create(guest="Grace")

    result = explain(replay(race(book, book_for_grace), "ABAB"))
    assert not result.startswith("duplicate insert")


def test_a_deadlock_names_the_cycle_with_its_rows_and_the_victim() -> None:
    run = replay(stories.opposite_transfers(), "ABAB")
    keys = [step.arguments[-1] for step in run.steps[:2]]

    assert explain(run) == (
        f"deadlock: B waited for A to release shop_seat id={keys[0]}, A waited for B to release shop_seat "
        f"id={keys[1]}; the server ended B's transaction"
    )


def greet(pk: int) -> None:
    user = User.objects.get(pk=pk)
    user.first_name += "!"
    user.save()


def one_user() -> int:
    return User.objects.create(username="ada", first_name="Ada", is_staff=True).pk


def test_a_flag_that_no_actor_changes_is_not_a_lost_update() -> None:
    result = explain(replay(race(greet, greet, set_up=one_user), "ABAB"))

    assert result.removesuffix(" (steps 2 and 4)") == (
        "lost update: B wrote first_name Ada! computed from Ada, which A had changed to Ada! in between"
    )


def test_columns_written_as_they_were_read_are_left_out() -> None:
    drawn = timeline(replay(race(greet, greet, set_up=one_user), "ABAB"), width=80).partition("end:")[0]

    assert ": first_name=Ada!" in drawn
    assert "→ first_name=Ada" in drawn
    assert "is_staff" not in drawn


def test_columns_of_a_row_that_was_read_by_a_join_are_left_out_too() -> None:
    def set_up() -> None:
        user, expense = User.objects.create(username="ada"), Expense.objects.create(purpose="tea")
        Decision.objects.create(expense=expense, manager=user)

    def approve(fixture: None) -> None:
        expense = Decision.objects.select_related("expense").get().expense
        expense.status = "approved"
        expense.save()

    drawn = timeline(replay(race(approve, approve, set_up=set_up), "ABAB"), width=80).partition("end:")[0]

    assert ": status=approved" in drawn
    assert "purpose" not in drawn


def test_a_row_with_many_columns_is_shortened() -> None:
    result = explain(replay(race(count_and_create, count_and_create, set_up=one_user), "ABAB"))

    assert result.startswith("write skew: ")
    assert result.count("...") == 2
    assert len(result) < 400


def count_and_create(pk: int) -> None:
    with transaction.atomic():
        number = User.objects.count()
        User.objects.create(username=f"guest {number} {uuid.uuid4()}", first_name="A" * 60, last_name="B" * 60)


def test_a_constraint_is_named() -> None:
    def taken(pk: int) -> None:
        Seat.objects.bulk_create([Seat(pk=pk)])

    result = explain(replay(race(taken), ""))

    assert result == "constraint violation: shop_seat_pkey refused A's INSERT shop_seat"


def test_a_failed_attempt_that_was_run_again_lost_nothing() -> None:
    result = explain(replay(race(stories.optimistic, stories.computed), "ABBAAAAA"))

    assert result == "unexplained"


def test_a_right_end_is_not_called_an_anomaly() -> None:
    assert find_explanation(replay(stories.raising(stories.locked), "")).kind == ""


def test_what_differs_is_explained_and_not_what_nobody_compares() -> None:
    def set_up() -> None:
        Seat.objects.create()
        PlainSeat.objects.create()

    def raise_both(fixture: Any) -> None:
        seat, plain = Seat.objects.get(), PlainSeat.objects.get()
        Seat.objects.update(price=seat.price + 1)
        PlainSeat.objects.update(price=plain.price + 1)

    scenario = Scenario(set_up=set_up, actors=[raise_both] * 2)
    tables = []
    for ignored in ("shop_seat.*", "shop_plainseat.*"):
        failure = explore(scenario, directed=True, ignore=[ignored], stop_on_first=True).failure
        assert failure is not None
        explanation = find_explanation(replay(scenario, failure.schedule, ignore=[ignored]))
        assert explanation.step is not None
        tables.append(explanation.step.sql.split()[1])

    assert tables == ['"shop_plainseat"', '"shop_seat"']


def test_where_only_answers_differ_tables_that_nobody_compares_come_last() -> None:
    Seat.objects.create()
    PlainSeat.objects.create()

    def remove(fixture: Any) -> None:
        seat, plain = Seat.objects.get(), PlainSeat.objects.get()
        plain.delete()
        Seat.objects.filter(pk=seat.pk).update(price=seat.price + 1)

    scenario = Scenario(set_up=lambda: None, actors=[remove] * 2)
    failure = explore(scenario, ignore=["shop_seat.*"], stop_on_first=True).failure
    assert failure is not None
    assert explain(replay(scenario, failure.schedule, ignore=["shop_seat.*"])).startswith("stale check: ")


def test_a_row_that_both_had_looked_for_before_a_look_without_a_value_was_inserted_twice() -> None:
    def add(pk: int) -> None:
        if not Seat.objects.filter(row="Z").exists():
            Seat.objects.filter(row="Z").exclude(guest="Ada").update(guest="")
            Seat.objects.create(row="Z")

    assert explain(replay(race(add, add), "AABBBA")) == (
        "duplicate insert: A and B both looked for a row of shop_seat with row=Z, found none, and inserted it "
        "(steps 1 and 6)"
    )


# Secrets


def test_a_secret_that_both_set_has_its_values_by_numbers() -> None:
    def change_password(password: str) -> Any:
        def actor(pk: int) -> None:
            user = User.objects.get(pk=pk)
            user.password = password
            user.save()

        return actor

    def set_up() -> int:
        return User.objects.create(username="ada", password="the first").pk

    run = replay(race(change_password("the second"), change_password("the third"), set_up=set_up), "ABBA")
    assert explain(run) == (
        "lost update: A wrote password ***3 computed from ***1, which B had changed to ***2 in between (steps 1 and 4)"
    )


def test_rows_with_secret_keys_are_told_apart() -> None:
    def extend(key: str) -> Any:
        def actor(fixture: None) -> None:
            session = Session.objects.get(pk=key)
            session.session_data += "more"
            session.save()

        return actor

    def set_up() -> None:
        for key in "xy":
            Session.objects.create(pk=key * 32, session_data=key, expire_date=datetime(2020, 1, 1, tzinfo=UTC))

    assert explain(replay(race(extend("x" * 32), extend("y" * 32), set_up=set_up), "ABBA")) == "unexplained"
