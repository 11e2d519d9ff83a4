"""What a form keeps closed is not the request's to open: decisions only ever leave something out."""

from typing import Any

import pytest
from django import forms
from django.http import HttpRequest
from django.test import Client

from tests.django_lockstep.admin.browsing import choose, conflict_of, fill, text_of, url
from tests.django_lockstep.admin.urls import OrderInline, SeatAdmin
from tests.testapps.shop.models import Order, Seat

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.admin.urls")]


class ClosedByItsClass(forms.ModelForm):  # type: ignore[type-arg]
    price = forms.DecimalField(disabled=True)


class ClosedAsItIsMade(forms.ModelForm):  # type: ignore[type-arg]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["price"].disabled = True


def get_closed_form(self: SeatAdmin, request: HttpRequest, obj: Any = None, **kwargs: Any) -> Any:
    form = super(SeatAdmin, self).get_form(request, obj, **kwargs)
    form.base_fields["price"].disabled = True
    return form


def get_closed_row(self: SeatAdmin, request: HttpRequest, **kwargs: Any) -> Any:
    return super(SeatAdmin, self).get_changelist_form(request, form=ClosedAsItIsMade, **kwargs)


CLOSED = [("form", ClosedByItsClass), ("form", ClosedAsItIsMade), ("get_form", get_closed_form)]


@pytest.fixture
def seat(db: None) -> Seat:
    return Seat.objects.create(guest="Ada", price=10)


@pytest.mark.parametrize(("attribute", "closed"), CLOSED)
def test_a_decision_opens_no_field(
    admin_client: Client, seat: Seat, monkeypatch: Any, attribute: str, closed: Any
) -> None:
    monkeypatch.setattr(SeatAdmin, attribute, closed, raising=False)
    data = fill(admin_client.get(url(seat)), price="1", guest="Bob", choice__price="mine")
    assert admin_client.post(url(seat), data).status_code == 302
    assert list(Seat.objects.values_list("guest", "price")) == [("Bob", 10)]


def test_nor_does_one_that_comes_with_a_real_conflict(admin_client: Client, seat: Seat, monkeypatch: Any) -> None:
    monkeypatch.setattr(SeatAdmin, "form", ClosedByItsClass)
    conflict = conflict_of(
        admin_client, seat, {"guest": "Eve", "price": 12}, price="1", guest="Bob", choice__price="mine"
    )
    assert (conflict.status_code, b'name="choice-price"' in conflict.content) == (409, False)
    data = choose(conflict, "mine", "guest") | {"choice-price": "mine"}
    assert admin_client.post(url(seat), data).status_code == 302
    assert list(Seat.objects.values_list("guest", "price")) == [("Bob", 12)]


def test_a_row_of_an_inline_stays_closed(admin_client: Client, seat: Seat, monkeypatch: Any) -> None:
    class Closed(forms.ModelForm):  # type: ignore[type-arg]
        count = forms.IntegerField(disabled=True)

    monkeypatch.setattr(OrderInline, "form", Closed)
    Order.objects.create(seat=seat, dish="soup")
    data = fill(admin_client.get(url(seat)), order_set__0__dish="stew", order_set__0__count="9")
    assert admin_client.post(url(seat), data | {"choice-order_set-0-count": "mine"}).status_code == 302
    assert list(Order.objects.values_list("dish", "count")) == [("stew", 1)]


def test_a_row_of_a_list_stays_closed(admin_client: Client, seat: Seat, monkeypatch: Any) -> None:
    monkeypatch.setattr(SeatAdmin, "get_changelist_form", get_closed_row, raising=False)
    page = admin_client.get(url(seat, "list"))
    typed = {"form__0__guest": "Bob", "form__0__price": "1", "choice__form__0__price": "mine"}
    data = fill(page, without=("action", "index"), _save="Save", **typed)
    assert admin_client.post(url(seat, "list"), data).status_code == 302
    assert list(Seat.objects.values_list("guest", "price")) == [("Bob", 10)]


@pytest.mark.parametrize("side", ["mine", "theirs"])
@pytest.mark.parametrize("name", ["version", "nothing", "_seen", "order_set-0-id", "order_set-0-seat"])
def test_a_decision_that_nobody_was_asked_for_changes_nothing(
    admin_client: Client, seat: Seat, name: str, side: str
) -> None:
    Order.objects.create(seat=seat, dish="soup")
    data = fill(admin_client.get(url(seat)), guest="Bob", order_set__0__dish="stew") | {f"choice-{name}": side}
    again = admin_client.post(url(seat), data | {"price": "ten"})
    assert again.status_code == 200
    assert admin_client.post(url(seat), fill(again, price="12")).status_code == 302
    assert list(Seat.objects.values_list("guest", "price", "version")) == [("Bob", 12, 2)]
    assert Order.objects.get().dish == "stew"


def test_a_decision_fills_in_nothing_that_is_not_compared(admin_client: Client, seat: Seat, monkeypatch: Any) -> None:
    class Agreeing(forms.ModelForm):  # type: ignore[type-arg]
        agreed = forms.BooleanField(initial=True)

    monkeypatch.setattr(SeatAdmin, "form", Agreeing)
    monkeypatch.setattr(SeatAdmin, "fields", (*SeatAdmin.fields, "agreed"))
    data = fill(admin_client.get(url(seat)), without=("agreed",), guest="Bob", choice__agreed="theirs")
    response = admin_client.post(url(seat), data)
    assert (response.status_code, Seat.objects.get().guest) == (200, "Ada")
    assert "This field is required" in text_of(response)


def test_a_declared_field_that_is_only_shown_is_not_asked_for(
    admin_client: Client, seat: Seat, monkeypatch: Any
) -> None:
    class Declaring(forms.ModelForm):  # type: ignore[type-arg]
        price = forms.DecimalField()

    monkeypatch.setattr(SeatAdmin, "form", Declaring)
    monkeypatch.setattr(SeatAdmin, "readonly_fields", ("price",))
    data = fill(admin_client.get(url(seat)), guest="Bob", choice__price="mine")
    assert admin_client.post(url(seat), data).status_code == 302
    assert list(Seat.objects.values_list("guest", "price")) == [("Bob", 10)]
