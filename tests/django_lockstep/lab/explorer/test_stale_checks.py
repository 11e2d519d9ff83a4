"""What went wrong in a run, in a sentence: writes on a check that no longer holds, and what was told beside them."""

import re
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User

from django_lockstep.lab.explorer import Scenario, explain, explore, replay
from tests.django_lockstep.lab.explorer import stories
from tests.django_lockstep.lab.explorer.test_explanations import one_user, race
from tests.testapps.press.models import Author, City
from tests.testapps.shop.models import Seat, Turnstile

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_stale_check_names_a_column_that_the_other_one_has_changed() -> None:
    def set_up() -> int:
        Author.objects.create(code=7)
        return City.objects.create().pk

    def settle(pk: int) -> None:
        city = City.objects.get(pk=pk)
        if city.poet_id is None:
            city.poet_id = 7
            city.save()

    result = explain(replay(race(settle, settle, set_up=set_up), "ABBA"))

    assert result.startswith("stale check: B read poet_id NULL, and A had changed it when B wrote poet_id = 7")


def test_a_time_that_both_set_where_there_was_none_is_a_stale_check() -> None:
    def log_in(pk: int) -> None:
        user = User.objects.get(pk=pk)
        user.last_login = datetime.now(UTC)
        user.save()

    result = explain(replay(race(log_in, log_in, set_up=one_user), "ABBA"))

    assert result.startswith("stale check: A read last_login NULL, and B had changed it when A wrote last_login = 2")


def test_a_write_that_found_nothing_is_told_where_its_actor_answers_as_if_it_had() -> None:
    def book(pk: int) -> str:
        seat = Seat.objects.filter(guest="").first()
        if seat is None:
            return "nothing is free"
        Seat.objects.filter(pk=seat.pk, guest="").update(guest="Ada")
        return "booked"

    scenario = Scenario(set_up=stories.one_seat, actors=[book] * 2)
    failure = explore(scenario).failure
    assert failure is not None
    result = explain(replay(scenario, failure.schedule))

    assert result.startswith("stale check: ")
    assert result.endswith("'s UPDATE found no row (steps 1 and 4); A answered as if it had")


def test_what_a_vain_write_has_led_to_comes_before_what_happened_beside_it() -> None:
    def retract(pk: int) -> None:
        viewer, seat = User.objects.get(), Seat.objects.get(pk=pk)
        Seat.objects.filter(pk=seat.pk)._raw_delete("default")
        if City.objects.count() == 0:
            Author.objects.create(name="retracted")
        viewer.last_name += "seen"
        viewer.save(update_fields=["last_name"])

    def set_up() -> int:
        one_user()
        return stories.one_seat()

    scenario = Scenario(set_up=set_up, actors=[retract] * 2)
    result = explain(replay(scenario, "AABBBBBBAAAA", ignore=["auth_user.*"]))

    assert result.startswith("stale check: A read shop_seat id=")
    assert result.endswith(
        "B had deleted it when A's DELETE found no row (steps 2 and 9); A went on with INSERT press_author all the same"
    )


def test_where_a_constraint_has_kept_the_rows_right_it_is_the_constraint() -> None:
    def number(pk: int) -> None:
        Seat.objects.get(pk=pk)
        if not Author.objects.filter(code=7).exists():
            Turnstile.objects.count()
            Author.objects.create(code=7)

    def number_and_count(pk: int) -> None:
        Seat.objects.filter(pk=pk).update(price=3)
        Turnstile.objects.create()
        Author.objects.get_or_create(code=7)

    result = explain(replay(Scenario(set_up=stories.one_seat, actors=[number, number_and_count]), "AABBBBBBB"))

    assert result == "constraint violation: press_author_code_key refused A's INSERT press_author"


def test_what_was_read_of_it_is_the_search_that_found_the_row() -> None:
    def rename(pk: int) -> None:
        user = User.objects.get(pk=pk)
        if not User.objects.exclude(pk=pk).filter(username="grace"):
            user.username = "grace"
            user.save()

    def remove(pk: int) -> None:
        User.objects.filter(pk=pk)._raw_delete("default")

    result = explain(replay(Scenario(set_up=one_user, actors=[rename, remove]), "AAB"))

    assert re.match(r"stale check: A read auth_user id=\d+, and B had deleted it when A's UPDATE", result)
    assert "(steps 1 and 4)" in result


def test_so_is_one_whose_row_was_deleted_among_others() -> None:
    def drop_two(pk: int) -> int:
        seats = list(Seat.objects.order_by("pk")[:2])
        for seat in seats:
            Seat.objects.filter(pk=seat.pk)._raw_delete("default")
        return len(seats)

    def drop_the_free(pk: int) -> int:
        dropped: int = Seat.objects.filter(guest="")._raw_delete("default")
        return dropped

    def set_up() -> int:
        stories.one_seat()
        return stories.one_seat()

    result = explain(replay(Scenario(set_up=set_up, actors=[drop_two, drop_the_free]), "AABA"))

    assert result.startswith("stale check: A read shop_seat")
    assert result.endswith("and B had deleted it when A's DELETE found no row (steps 1 and 4); A answered as if it had")
