"""Rows of inlines: each is compared, and the page names the one that is in the way."""

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from tests.django_lockstep.admin.browsing import change, choose, conflict_of, fill, text_of, url
from tests.support.factories import client_of_staff
from tests.testapps.shop.models import Order, Seat

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.admin.urls")]


@pytest.fixture
def orders(seat: Seat) -> list[Order]:
    return [Order.objects.create(seat=seat, dish=dish) for dish in ("soup", "fish")]


def dishes() -> list[tuple[str, int]]:
    return list(Order.objects.order_by("pk").values_list("dish", "count"))


def test_rows_are_saved_and_added(admin_client: Client, seat: Seat, orders: list[Order]) -> None:
    data = fill(admin_client.get(url(seat)), order_set__0__count="3", order_set__2__dish="cake")
    assert admin_client.post(url(seat), data).status_code == 302
    assert dishes() == [("soup", 3), ("fish", 1), ("cake", 1)]
    assert Order.objects.get(dish="fish").version == 1


def test_the_page_names_inline_and_row(admin_client: Client, seat: Seat, orders: list[Order]) -> None:
    response = conflict_of(admin_client, seat, {"dish": "eel"}, row=orders[1], guest="Bob", order_set__1__dish="cod")
    assert response.status_code == 409
    assert "Order in row 2: fish" in text_of(response).replace("Order in row 2: eel", "Order in row 2: fish")
    assert "Dish Please choose fish eel cod" in text_of(response)
    assert (Seat.objects.get().guest, dishes(), LogEntry.objects.count()) == ("Ada", [("soup", 1), ("eel", 1)], 0)


def test_all_is_saved_once_it_is_decided(admin_client: Client, seat: Seat, orders: list[Order]) -> None:
    conflict = conflict_of(
        admin_client, seat, {"dish": "eel", "count": 5}, row=orders[1], guest="Bob", order_set__1__dish="cod"
    )
    assert admin_client.post(url(seat), choose(conflict, "mine", "order_set-1-dish")).status_code == 302
    assert (Seat.objects.get().guest, dishes()) == ("Bob", [("soup", 1), ("cod", 5)])


def test_object_and_row_can_conflict_at_once(admin_client: Client, seat: Seat, orders: list[Order]) -> None:
    page = admin_client.get(url(seat))
    change(Seat, seat.pk, guest="Eve")
    change(Order, orders[0].pk, dish="stew")
    conflict = admin_client.post(url(seat), fill(page, guest="Bob", order_set__0__dish="broth"))
    data = choose(conflict, "mine", "guest") | {"choice-order_set-0-dish": "theirs"}
    assert admin_client.post(url(seat), data).status_code == 302
    assert (Seat.objects.get().guest, dishes()[0]) == ("Bob", ("stew", 1))


def test_a_row_not_touched_here_stays_as_they_made_it(admin_client: Client, seat: Seat, orders: list[Order]) -> None:
    page = admin_client.get(url(seat))
    change(Order, orders[0].pk, dish="stew")
    assert admin_client.post(url(seat), fill(page, guest="Bob")).status_code == 302
    assert (Seat.objects.get().guest, dishes()[0]) == ("Bob", ("stew", 1))
    assert LogEntry.objects.get().get_change_message() == "Changed Guest."


class TestDeletion:
    def test_of_a_changed_row_is_asked_about(self, admin_client: Client, seat: Seat, orders: list[Order]) -> None:
        conflict = conflict_of(admin_client, seat, {"dish": "stew"}, row=orders[0], order_set__0__DELETE="on")
        assert (conflict.status_code, Order.objects.count()) == (409, 2)
        assert admin_client.post(url(seat), fill(conflict)).status_code == 409
        data = choose(conflict, "mine", "order_set-0-DELETE")
        assert admin_client.post(url(seat), data).status_code == 302
        assert dishes() == [("fish", 1)]

    def test_can_be_given_up(self, admin_client: Client, seat: Seat, orders: list[Order]) -> None:
        conflict = conflict_of(
            admin_client, seat, {"dish": "stew"}, row=orders[0], guest="Bob", order_set__0__DELETE="on"
        )
        assert admin_client.post(url(seat), choose(conflict, "theirs", "order_set-0-DELETE")).status_code == 302
        assert (dishes(), Seat.objects.get().guest) == ([("stew", 1), ("fish", 1)], "Bob")

    def test_by_somebody_else_is_told_with_what_was_typed(
        self, admin_client: Client, seat: Seat, orders: list[Order]
    ) -> None:
        page = admin_client.get(url(seat))
        orders[0].delete()
        conflict = admin_client.post(url(seat), fill(page, guest="Bob", order_set__0__dish="broth"))
        assert conflict.status_code == 409
        assert "Order in row 1" in text_of(conflict)
        assert "It was deleted and stays deleted. You typed: Dish broth" in text_of(conflict)
        assert admin_client.post(url(seat), fill(conflict)).status_code == 302
        assert (Seat.objects.get().guest, dishes()) == ("Bob", [("fish", 1)])


@pytest.mark.parametrize("token", ["", "forged"])
def test_a_row_without_its_token_is_refused(admin_client: Client, seat: Seat, orders: list[Order], token: str) -> None:
    data = fill(admin_client.get(url(seat)), order_set__0___seen=token, order_set__0__dish="broth")
    response = admin_client.post(url(seat), data)
    assert response.status_code == 200
    assert "did not contain the version" in text_of(response)
    assert dishes()[0] == ("soup", 1)


def test_whoever_may_only_look_sees_no_token(seat: Seat, orders: Any) -> None:
    response = client_of_staff("view_seat", "view_order").get(url(seat))
    assert response.status_code == 200
    assert "_seen" not in response.content.decode()


def test_in_an_admin_that_does_not_compare_it_refuses_to_save(seat: Seat, rf: Any, admin_user: Any) -> None:
    from django.contrib.admin import ModelAdmin
    from django.core.exceptions import ImproperlyConfigured

    from tests.django_lockstep.admin.urls import OrderInline, site

    class Careless(ModelAdmin):  # type: ignore[type-arg]
        inlines = (OrderInline,)

    request = rf.post("/", {})
    request.user, request._dont_enforce_csrf_checks = admin_user, True
    with pytest.raises(ImproperlyConfigured, match="OrderInline must be an inline of a VersionedModelAdmin"):
        Careless(Seat, site).change_view(request, str(seat.pk))
