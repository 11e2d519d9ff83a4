"""Rows that an admin's ``get_queryset`` leaves out: nothing of them is told, and nothing is done to them."""

from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.db import connection
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.django_lockstep.admin.browsing import change, fill, text_of, url
from tests.django_lockstep.admin.test_lists import LIST, act
from tests.django_lockstep.admin.urls import PosterAdmin, SeatAdmin
from tests.support.sessions import Session
from tests.testapps.shop.models import Order, Seat, UuidSeat

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.admin.urls")]

PERHAPS = "Perhaps it was deleted?"


def get_own_seats(self: SeatAdmin, request: HttpRequest) -> QuerySet[Any]:
    return super(SeatAdmin, self).get_queryset(request).filter(row="A")


@pytest.fixture(autouse=True)
def seats_of_row_a_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SeatAdmin, "get_queryset", get_own_seats, raising=False)


@pytest.fixture
def own(db: None) -> Seat:
    return Seat.objects.create(row="A", guest="Ada")


@pytest.fixture
def hidden(db: None, admin_user: Any) -> Seat:
    """Somebody else's seat, which somebody has changed lately."""
    seat = Seat.objects.create(row="B", guest="Mallory")
    log(admin_user, seat)
    return seat


def log(user: Any, seat: Seat) -> None:
    LogEntry.objects.log_actions(user.pk, [seat], CHANGE, "Moved to the royal box")


def hide(seat: Seat, user: Any) -> None:
    """Let somebody give the seat to another department."""
    change(Seat, seat.pk, row="B", guest="Mallory")
    log(user, seat)


def assert_nothing_is_told(response: Any) -> None:
    before, sentence, after = text_of(response).partition(PERHAPS)
    told = ("Mallory", "royal box", "version", "deleted", "Seat object")
    assert (sentence, [words for words in told if words in before + after]) == (PERHAPS, [])


class TestActions:
    @pytest.mark.parametrize("action", ["give_away", "delete_selected"])
    def test_do_not_name_them(self, admin_client: Client, own: Seat, hidden: Seat, action: str) -> None:
        response = act(admin_client, admin_client.get(LIST), action, hidden)
        assert response.status_code == 409
        assert_nothing_is_told(response)
        assert Seat.objects.get(pk=hidden.pk).guest == "Mallory"

    def test_do_not_lock_them(self, admin_client: Client, own: Seat, hidden: Seat) -> None:
        page = admin_client.get(LIST)
        with CaptureQueriesContext(connection) as queries:
            act(admin_client, page, "give_away", hidden)
        assert [query for query in queries if "FOR NO KEY UPDATE" in query["sql"]] == []

    def test_do_not_tell_them_from_rows_that_never_were(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(PosterAdmin, "get_queryset", lambda *_: UuidSeat.objects.none(), raising=False)
        answers = []
        for seat in (UuidSeat.objects.create(), UuidSeat()):
            chosen = {"action": "delete_selected", "index": "0", "_selected_action": str(seat.pk)}
            answers.append(text_of(admin_client.post(url(seat, "list"), chosen)).replace(str(seat.pk), "its key"))
        assert answers[0] == answers[1]

    def test_do_not_begin_if_one_was_hidden_since(self, admin_client: Client, own: Seat, admin_user: Any) -> None:
        page = admin_client.get(LIST)
        hide(own, admin_user)
        response = act(admin_client, page, "give_away", own)
        assert response.status_code == 409
        assert_nothing_is_told(response)

    @pytest.mark.django_db(transaction=True)
    def test_do_not_begin_if_one_was_hidden_while_they_waited_for_it(
        self, admin_client: Client, admin_user: Any, own: Seat, other: Session, open_session: Any
    ) -> None:
        page = admin_client.get(LIST)
        with other.holding(hide, own, admin_user):
            rival = open_session()
            answer = rival.start(act, admin_client, page, "give_away", own)
            rival.wait_until_blocked()
        assert answer.result(20).status_code == 409
        assert_nothing_is_told(answer.result(20))

    def test_run_on_what_any_query_set_gives(
        self, admin_client: Client, own: Seat, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for dish in ("soup", "stew"):
            Order.objects.create(seat=own, dish=dish)

        def get_hungry(self: Any, request: HttpRequest) -> QuerySet[Any]:
            return Seat.objects.filter(order__count=1).annotate(dishes=Count("order")).distinct().order_by("dishes")

        monkeypatch.setattr(SeatAdmin, "get_queryset", get_hungry)
        assert act(admin_client, admin_client.get(LIST), "give_away", own).status_code == 302
        assert Seat.objects.get().guest == ""

    def test_run_on_what_no_longer_fits_the_lists_filter(self, admin_client: Client, own: Seat) -> None:
        page = admin_client.get(LIST + "?guest=Ada")
        change(Seat, own.pk, guest="Eve")
        chosen: dict[str, Any] = {"action": "give_away", "index": "0", "_selected_action": str(own.pk)}
        response = admin_client.post(LIST + "?guest=Ada", fill(page, **chosen))
        assert response.status_code == 409
        assert "Guest Ada Eve" in text_of(response)


class TestChangeForm:
    def test_does_not_say_that_one_was_deleted(self, admin_client: Client, own: Seat, hidden: Seat) -> None:
        response = admin_client.post(url(hidden), fill(admin_client.get(url(own)), guest="Bob"))
        assert_nothing_is_told(response)
        assert "Guest Bob" in text_of(response)

    def test_keeps_what_was_typed_on_one_hidden_since(self, admin_client: Client, own: Seat, admin_user: Any) -> None:
        page = admin_client.get(url(own))
        hide(own, admin_user)
        response = admin_client.post(url(own), fill(page, guest="Bob"))
        assert_nothing_is_told(response)
        assert "Guest Bob" in text_of(response)

    def test_tells_nothing_of_one_that_was_hidden_when_deleted(self, admin_client: Client, hidden: Seat) -> None:
        address = url(hidden)
        hidden.delete()
        assert_nothing_is_told(admin_client.post(address, {"guest": "Bob"}))


class TestRows:
    def test_of_a_list_are_not_said_to_be_deleted(self, admin_client: Client, own: Seat, admin_user: Any) -> None:
        page = admin_client.get(LIST)
        hide(own, admin_user)
        data = fill(page, without=("action", "index"), _save="Save", form__0__guest="Bob")
        response = admin_client.post(LIST, data)
        assert response.status_code == 409
        assert "It was deleted" not in text_of(response)
        assert "royal box" not in text_of(response)
        assert f"{PERHAPS} You typed: Guest Bob" in text_of(response)

    def test_of_an_inline_are_not_said_to_be_deleted(self, admin_client: Client, own: Seat) -> None:
        order = Order.objects.create(seat=own, dish="soup")
        page = admin_client.get(url(own))
        change(Order, order.pk, seat=Seat.objects.create(row="B"))
        response = admin_client.post(url(own), fill(page, guest="Bob", order_set__0__dish="stew"))
        assert response.status_code == 409
        assert f"{PERHAPS} You typed: Dish stew" in text_of(response)
        assert admin_client.post(url(own), fill(response)).status_code == 302
        assert (Seat.objects.get(pk=own.pk).guest, Order.objects.get().dish) == ("Bob", "soup")
