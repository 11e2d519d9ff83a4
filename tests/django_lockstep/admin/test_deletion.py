"""Whoever deletes an object deletes what they saw."""

from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_lockstep.admin.tokens import Seen
from tests.django_lockstep.admin.browsing import change, fill, messages_of, text_of, url
from tests.support.factories import client_of_staff
from tests.support.sessions import Gate, Session, overtaken
from tests.testapps.shop.models import Poster, Seat

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.admin.urls")]


def confirmation(client: Client, seat: Any) -> tuple[str, Any]:
    """Open the confirmation; return its address and its page."""
    address = client.get(url(seat, "delete")).headers["Location"]
    return address, client.get(address)


def test_what_was_confirmed_is_deleted(admin_client: Client, seat: Seat) -> None:
    address, page = confirmation(admin_client, seat)
    assert "Are you sure" in text_of(page)
    response = admin_client.post(address, fill(page))
    assert (response.status_code, Seat.objects.count(), LogEntry.objects.count()) == (302, 0, 1)


def test_what_was_changed_since_is_shown_instead(admin_client: Client, seat: Seat) -> None:
    address, page = confirmation(admin_client, seat)
    change(Seat, seat.pk, guest="Eve")
    response = admin_client.post(address, fill(page))
    assert (response.status_code, Seat.objects.count(), LogEntry.objects.count()) == (409, 1, 0)
    assert "Guest another value Eve" in text_of(response)
    assert messages_of(admin_client, response) == []


def test_a_question_about_an_older_version_shows_what_changed(admin_client: Client, seat: Seat) -> None:
    address, _ = confirmation(admin_client, seat)
    change(Seat, seat.pk, guest="Eve")
    response = admin_client.get(address)
    assert response.status_code == 409
    assert (
        "Version 1 was shown; the current version is 2. Field When it was shown Now Guest another value Eve"
        in text_of(response)
    )


@pytest.mark.parametrize("query", ["", "?_seen=", "?_seen=forged", "?_seen=other"])
def test_without_a_token_of_its_own_nothing_is_deleted(admin_client: Client, seat: Seat, query: str) -> None:
    if query == "?_seen=other":
        query = "?" + confirmation(admin_client, Seat.objects.create())[0].partition("?")[2]
    response = admin_client.post(url(seat, "delete") + query, {"post": "yes"})
    assert (response.status_code, Seat.objects.filter(pk=seat.pk).count()) == (409, 1)


@pytest.mark.django_db(transaction=True)
def test_a_change_right_before_the_delete_is_met(admin_client: Client, seat: Seat, other: Session) -> None:
    address, page = confirmation(admin_client, seat)
    gate, meanwhile = Gate('SELECT "shop_seat"."version"'), partial(change, Seat, seat.pk, guest="Eve")
    response = overtaken(other, gate, meanwhile, admin_client.post, address, fill(page))
    assert (response.status_code, Seat.objects.count(), LogEntry.objects.count()) == (409, 1, 0)
    assert "Guest another value Eve" in text_of(response)


def test_long_values_do_not_make_long_addresses(admin_client: Client) -> None:
    import secrets

    seat = Seat.objects.create(guest=secrets.token_hex(20), row=secrets.token_hex(5))
    address, page = confirmation(admin_client, seat)
    assert len(address) < 500
    assert admin_client.post(address, fill(page)).status_code == 302


def test_other_parameters_are_kept(admin_client: Client, seat: Seat) -> None:
    address = admin_client.get(url(seat, "delete") + "?_changelist_filters=q%3DAda").headers["Location"]
    assert "_changelist_filters=q%3DAda&_seen=" in address


def test_who_may_not_delete_is_not_asked(seat: Seat) -> None:
    assert client_of_staff().get(url(seat, "delete")).status_code == 403


def test_of_nothing_there_is_a_message(admin_client: Client) -> None:
    response = admin_client.get(url(Poster(pk=4711), "delete"))
    assert response.status_code == 302
    assert "Perhaps it was deleted?" in messages_of(admin_client, response)[0]


def test_addresses_tell_no_values(admin_client: Client, seat: Seat) -> None:
    address, _ = confirmation(admin_client, seat)
    seen = Seen.read(parse_qs(urlsplit(address).query)["_seen"][0], Seat)
    assert seen is not None
    assert seen.base.keys() == {"row", "guest", "price"}
    assert "Ada" not in seen.base.values()


@pytest.mark.usefixtures("named_by_guest")
class TestNamedByAnotherField:
    """As links beside a related field name an object, where the relation is not to the primary key."""

    def address(self, guest: str, field: str = "guest") -> str:
        return f"/admin/shop/seat/{guest}/delete/?_to_field={field}&_popup=1"

    def confirmation(self, client: Client, guest: str) -> tuple[str, Any]:
        address = client.get(self.address(guest)).headers["Location"]
        return address, client.get(address)

    def test_it_is_deleted(self, admin_client: Client, seat: Seat) -> None:
        address, page = self.confirmation(admin_client, "Ada")
        assert "Are you sure" in text_of(page)
        assert (
            b'data-popup-response="{&quot;action&quot;: &quot;delete' in admin_client.post(address, fill(page)).content
        )
        assert Seat.objects.count() == 0

    def test_what_was_changed_since_is_shown_instead(self, admin_client: Client, seat: Seat) -> None:
        address, page = self.confirmation(admin_client, "Ada")
        change(Seat, seat.pk, price=12)
        refused: Any = admin_client.post(address, fill(page))
        assert (refused.status_code, Seat.objects.count()) == (409, 1)
        assert "Version 1 was shown; the current version is 2." in text_of(refused)
        again = refused.context_data["again"]
        admin_client.post(again, fill(admin_client.get(again)))
        assert Seat.objects.count() == 0

    def test_another_object_that_has_the_value_as_its_key_is_not_meant(self, admin_client: Client, seat: Seat) -> None:
        named = Seat.objects.create(guest=str(seat.pk))
        address, page = self.confirmation(admin_client, named.guest)
        admin_client.post(address, fill(page))
        assert list(Seat.objects.all()) == [seat]

    def test_by_a_field_that_nothing_refers_to_it_is_refused(self, admin_client: Client, seat: Seat) -> None:
        assert admin_client.get(self.address("A", field="row")).status_code == 400
