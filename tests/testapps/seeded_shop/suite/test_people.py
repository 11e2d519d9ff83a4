"""Messages, and who is on call."""

from collections.abc import Callable

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse


@pytest.fixture
def send(shop: str, customer_client: Client) -> Callable[[str], int]:
    url = reverse(f"{shop}:message")
    return lambda text: customer_client.post(url, {"text": text}, content_type="application/json").status_code


def test_a_message_is_sent(shop: str, send: Callable[[str], int], customer: User) -> None:
    assert send("Is it in stock?") == 201
    message = apps.get_model(shop, "Message")._default_manager.get()
    assert (message.sender_id, message.text) == (customer.pk, "Is it in stock?")


def test_three_messages_an_hour(shop: str, send: Callable[[str], int]) -> None:
    assert [send(f"Number {number}") for number in range(4)] == [201, 201, 201, 429]
    assert apps.get_model(shop, "Message")._default_manager.count() == 3


@pytest.mark.django_db(transaction=True)
def test_a_doctor_goes_home(shop: str, client: Client) -> None:
    # The request of the next test, after which this one does nothing else.
    for name in ("house", "wilson"):
        doctor = User.objects.create_user(name)
        apps.get_model(shop, "Shift")._default_manager.create(doctor=doctor)
    client.force_login(doctor)
    assert client.delete(reverse(f"{shop}:on-call")).status_code == 204


@pytest.mark.django_db(transaction=True)
def test_a_shift_is_ended_while_someone_else_is_on_call(shop: str) -> None:
    shifts = apps.get_model(shop, "Shift")._default_manager
    statuses = []
    for name in ("house", "wilson"):
        shifts.create(doctor=User.objects.create_user(name))
    for name in ("house", "wilson"):
        doctor = Client()
        doctor.force_login(User.objects.get(username=name))
        statuses.append(doctor.delete(reverse(f"{shop}:on-call")).status_code)
    assert statuses == [204, 409]
    assert shifts.get(on_call=True).doctor.username == "wilson"


@pytest.mark.django_db
def test_anonymous_visitors_have_no_shift(shop: str, client: Client) -> None:
    assert client.delete(reverse(f"{shop}:on-call")).status_code == 302
