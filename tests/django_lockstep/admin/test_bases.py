"""Together with other admin classes, whose forms stay what they are."""

import pytest
from django.test import Client

from tests.django_lockstep.admin.browsing import choose, conflict_of, fill, url
from tests.testapps.shop.models import Seat, UuidSeat

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.admin.bases_urls")]

ADD = "/admin/shop/seat/add/"


def test_djangos_user_admin_adds_with_its_own_form(admin_client: Client) -> None:
    page = admin_client.get(ADD)
    assert {"guest", "again"} <= fill(page).keys()
    assert admin_client.post(ADD, fill(page, guest="Ada")).status_code == 200
    assert admin_client.post(ADD, fill(page, guest="Ada", again="Ada")).status_code == 302
    assert Seat.objects.get().guest == "Ada"


def test_djangos_user_admin_compares_what_is_changed(admin_client: Client) -> None:
    seat = Seat.objects.create(guest="Ada")
    conflict = conflict_of(admin_client, seat, {"guest": "Eve"}, guest="Bob")
    assert conflict.status_code == 409
    assert admin_client.post(url(seat), choose(conflict, "mine", "guest")).status_code == 302
    assert Seat.objects.get().guest == "Bob"


def test_a_field_that_another_base_closes_stays_closed(admin_client: Client) -> None:
    seat = UuidSeat.objects.create(guest="Ada")
    page = admin_client.get(url(seat))
    assert "guest" not in fill(page)
    assert admin_client.post(url(seat), fill(page, guest="Bob")).status_code == 302
    assert UuidSeat.objects.get().guest == "Ada"
