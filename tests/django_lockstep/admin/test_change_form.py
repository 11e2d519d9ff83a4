"""Two people edit one object: nothing is lost, and nothing is said that is not so."""

from functools import partial
from typing import Any

import pytest
from django import forms
from django.contrib.admin.models import LogEntry
from django.http import HttpRequest
from django.test import Client

from tests.django_lockstep.admin.browsing import change, choose, conflict_of, fill, messages_of, text_of, url
from tests.django_lockstep.admin.urls import OrderInline, SeatAdmin
from tests.support.factories import client_of_staff
from tests.support.sessions import Gate, Session, overtaken, query
from tests.testapps.shop.models import OddSeat, Order, Poster, Seat, UuidSeat

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.admin.urls")]


def stored(obj: Any) -> Any:
    return type(obj).objects.get(pk=obj.pk)


class TestWithoutAConflict:
    def test_an_object_can_be_added(self, admin_client: Client) -> None:
        page = admin_client.get("/admin/shop/seat/add/")
        response = admin_client.post("/admin/shop/seat/add/", fill(page, row="B", guest="Bob", price="1"))
        assert (response.status_code, Seat.objects.get().guest) == (302, "Bob")

    def test_a_form_can_be_sent_twice_after_a_typing_error(self, admin_client: Client, seat: Seat) -> None:
        again = admin_client.post(url(seat), fill(admin_client.get(url(seat)), price="ten"))
        assert again.status_code == 200
        assert admin_client.post(url(seat), fill(again, price="12")).status_code == 302
        assert stored(seat).price == 12

    @pytest.mark.parametrize("model", [UuidSeat, OddSeat])
    def test_any_key_will_do(self, admin_client: Client, model: Any) -> None:
        obj = model.objects.create(guest="Ada", **({"code": "a b/c"} if model is OddSeat else {}))
        address = url(obj).replace("a b/c", "a_20b_2Fc")
        page = admin_client.get(address)
        change(model, obj.pk, guest="Eve")
        assert admin_client.post(address, fill(page, guest="Bob")).status_code == 409
        assert stored(obj).guest == "Eve"


class TestRefused:
    @pytest.mark.parametrize("kind", ["missing", "forged", "another object's", "another model's"])
    def test_a_form_that_does_not_say_what_it_was_made_from(self, admin_client: Client, seat: Seat, kind: str) -> None:
        other = Seat.objects.create()
        token = {
            "missing": None,
            "forged": "x" + fill(admin_client.get(url(seat)))["_seen"][0],
            "another object's": fill(admin_client.get(url(other)))["_seen"],
            "another model's": fill(admin_client.get(url(Poster.objects.create(pk=seat.pk))))["_seen"],
        }[kind]
        data = fill(admin_client.get(url(seat)), without=("_seen",), guest="Bob") | ({"_seen": token} if token else {})
        response = admin_client.post(url(seat), data)
        assert response.status_code == 200
        assert "Nothing was saved: the form did not contain the version" in text_of(response)
        assert (fill(response)["guest"], stored(seat).guest) == (["Bob"], "Ada")

    def test_it_can_be_compared_and_saved_then(self, admin_client: Client, seat: Seat) -> None:
        data = fill(admin_client.get(url(seat)), without=("_seen",), guest="Bob")
        compared = admin_client.post(url(seat), fill(admin_client.post(url(seat), data)))
        assert compared.status_code == 409
        assert admin_client.post(url(seat), choose(compared, "mine", "guest")).status_code == 302
        assert stored(seat).guest == "Bob"


class TestConflict:
    def test_the_page_shows_base_theirs_and_mine(self, admin_client: Client, seat: Seat) -> None:
        response = conflict_of(admin_client, seat, {"guest": "Eve"}, guest="Bob")
        text = text_of(response)
        assert response.status_code == 409
        assert "When you opened it (version 1) Theirs (saved) (version 2) Mine" in text
        assert "Guest Please choose Ada Eve Bob" in text
        assert (stored(seat).guest, LogEntry.objects.count(), messages_of(admin_client, response)) == ("Eve", 0, [])

    def test_it_tells_who_changed_it(self, admin_client: Client, seat: Seat) -> None:
        page = admin_client.get(url(seat))
        admin_client.post(url(seat), fill(page, guest="Eve"))
        text = text_of(admin_client.post(url(seat), fill(page, guest="Bob")))
        assert ", admin: Changed Guest." in text

    @pytest.mark.parametrize(("decision", "guest"), [("mine", "Bob"), ("theirs", "Eve")])
    def test_a_field_both_changed_is_decided(self, admin_client: Client, seat: Seat, decision: str, guest: str) -> None:
        conflict = conflict_of(admin_client, seat, {"guest": "Eve"}, guest="Bob", price="12.00")
        assert admin_client.post(url(seat), choose(conflict, decision, "guest")).status_code == 302
        assert (stored(seat).guest, stored(seat).price, stored(seat).version) == (guest, 12, 3)

    def test_undecided_it_is_asked_again(self, admin_client: Client, seat: Seat) -> None:
        conflict = conflict_of(admin_client, seat, {"guest": "Eve"}, guest="Bob")
        assert admin_client.post(url(seat), fill(conflict)).status_code == 409
        assert stored(seat).guest == "Eve"

    def test_disjoint_changes_are_merged_and_preselected(self, admin_client: Client, seat: Seat) -> None:
        conflict = conflict_of(admin_client, seat, {"guest": "Eve", "row": "Z"}, price="12.00")
        assert conflict.status_code == 409
        assert admin_client.post(url(seat), fill(conflict)).status_code == 302
        merged = stored(seat)
        assert (merged.row, merged.guest, merged.price) == ("Z", "Eve", 12)

    def test_a_merge_can_be_overruled(self, admin_client: Client, seat: Seat) -> None:
        conflict = conflict_of(admin_client, seat, {"guest": "Eve"}, price="12.00")
        data = choose(conflict, "mine", "guest") | {"choice-price": "theirs"}
        assert admin_client.post(url(seat), data).status_code == 302
        assert (stored(seat).guest, stored(seat).price) == ("Ada", 10)

    def test_saving_is_checked_again(self, admin_client: Client, seat: Seat) -> None:
        first = conflict_of(admin_client, seat, {"guest": "Eve"}, guest="Bob")
        change(Seat, seat.pk, guest="Mallory")
        second = admin_client.post(url(seat), choose(first, "theirs", "guest"))
        assert second.status_code == 409
        assert "Guest Please choose Ada Mallory Bob" in text_of(second)
        assert admin_client.post(url(seat), choose(second, "mine", "guest")).status_code == 302
        assert stored(seat).guest == "Bob"

    def test_decisions_survive_a_typing_error(self, admin_client: Client, seat: Seat) -> None:
        conflict = conflict_of(admin_client, seat, {"guest": "Eve"}, guest="Bob", price="ten")
        error = admin_client.post(url(seat), choose(conflict, "theirs", "guest"))
        assert (error.status_code, fill(error)["price"]) == (200, ["ten"])
        assert admin_client.post(url(seat), fill(error, price="12")).status_code == 302
        assert (stored(seat).guest, stored(seat).price) == ("Eve", 12)

    def test_the_button_that_was_pressed_is_remembered(self, admin_client: Client, seat: Seat) -> None:
        conflict = conflict_of(admin_client, seat, {"row": "Z"}, guest="Bob", _continue="1")
        assert admin_client.post(url(seat), fill(conflict)).headers["Location"] == url(seat)

    def test_a_copy_is_no_conflict(self, admin_client: Client, seat: Seat, monkeypatch: Any) -> None:
        monkeypatch.setattr(SeatAdmin, "save_as", True)
        page = admin_client.get(url(seat))
        change(Seat, seat.pk, guest="Eve")
        assert admin_client.post(url(seat), fill(page, guest="Bob", _saveasnew="1")).status_code == 302
        assert {guest for (guest,) in Seat.objects.values_list("guest")} == {"Eve", "Bob"}

    def test_a_row_that_begins_at_version_0_is_compared_too(self, admin_client: Client, seat: Seat) -> None:
        query("UPDATE shop_seat SET version = 0")
        assert conflict_of(admin_client, seat, {"guest": "Eve"}, guest="Bob").status_code == 409
        assert stored(seat).guest == "Eve"


class TestDeletedMeanwhile:
    def test_what_was_typed_is_shown(self, admin_client: Client, seat: Seat) -> None:
        page = admin_client.get(url(seat))
        seat.delete()
        response = admin_client.post(url(seat), fill(page, guest="Bob"))
        assert response.status_code == 409
        assert "was deleted after you opened it" in text_of(response)
        assert "Guest Bob" in text_of(response)

    def test_it_tells_who_deleted_it(self, admin_client: Client, seat: Seat) -> None:
        page = admin_client.get(url(seat))
        question = admin_client.get(url(seat, "delete")).headers["Location"]
        admin_client.post(question, fill(admin_client.get(question)))
        assert ", admin: Deletion" in text_of(admin_client.post(url(seat), fill(page, guest="Bob")))

    def test_without_permission_nothing_is_shown(self, seat: Seat) -> None:
        seat.delete()
        assert client_of_staff().post(f"/admin/shop/seat/{seat.pk or 1}/change/", {"guest": "Bob"}).status_code == 403


class TestBetweenCleanAndSave:
    """The other session commits after the form was compared, right before the form's own UPDATE."""

    def save_gated(self, client: Client, obj: Any, other: Session, meanwhile: Any, **typed: Any) -> Any:
        page = client.get(url(obj))
        return overtaken(other, Gate('UPDATE "shop_'), meanwhile, client.post, url(obj), fill(page, **typed))

    @pytest.mark.django_db(transaction=True)
    def test_a_change_is_shown_and_nothing_else_is_told(self, admin_client: Client, seat: Seat, other: Session) -> None:
        meanwhile = partial(change, Seat, seat.pk, guest="Eve")
        response = self.save_gated(admin_client, seat, other, meanwhile, guest="Bob")
        assert (response.status_code, stored(seat).guest) == (409, "Eve")
        assert (messages_of(admin_client, response), LogEntry.objects.count()) == ([], 0)

    @pytest.mark.django_db(transaction=True)
    def test_a_deletion_is_shown(self, admin_client: Client, seat: Seat, other: Session) -> None:
        response = self.save_gated(admin_client, seat, other, Seat.objects.all().delete, guest="Bob")
        assert (response.status_code, Seat.objects.count()) == (409, 0)
        assert "Guest Bob" in text_of(response)

    @pytest.mark.django_db(transaction=True)
    def test_a_change_of_an_inline_undoes_the_object(self, admin_client: Client, seat: Seat, other: Session) -> None:
        order = Order.objects.create(seat=seat, dish="soup")
        data = fill(admin_client.get(url(seat)), guest="Bob", order_set__0__dish="fish")
        meanwhile = partial(change, Order, order.pk, dish="cake")
        response = overtaken(other, Gate('UPDATE "shop_order"'), meanwhile, admin_client.post, url(seat), data)
        assert response.status_code == 409
        assert (stored(seat).guest, stored(order).dish, LogEntry.objects.count()) == ("Ada", "cake", 0)


class TestFiles:
    def test_they_have_to_be_chosen_again(self, admin_client: Client, tmp_path: Any, settings: Any) -> None:
        from django.core.files.base import ContentFile

        settings.MEDIA_ROOT = tmp_path
        poster = Poster.objects.create(caption="old")
        conflict = conflict_of(
            admin_client, poster, {"caption": "theirs"}, picture=ContentFile(b"image", name="mine.png")
        )
        assert "mine.png: " in text_of(conflict)
        assert b'type="file" name="picture"' in conflict.content
        data = choose(conflict, "mine", "picture") | {"picture": ContentFile(b"image", name="mine.png")}
        assert admin_client.post(url(poster), data).status_code == 302
        assert (stored(poster).caption, stored(poster).picture.name) == ("theirs", "posters/mine.png")


def test_related_objects_are_shown_by_name(admin_client: Client, seat: Seat) -> None:
    poster = Poster.objects.create()
    conflict = conflict_of(admin_client, poster, {"seat": seat}, caption="mine", seat="")
    assert f"Seat - Seat object ({seat.pk}) -" in text_of(conflict)
    admin_client.post(url(poster), fill(conflict))
    assert (stored(poster).seat, stored(poster).caption) == (seat, "mine")


@pytest.mark.usefixtures("named_by_guest")
class TestNamedByAnotherField:
    @pytest.fixture
    def address(self, seat: Seat) -> str:
        return f"/admin/shop/seat/{seat.guest}/change/?_to_field=guest"

    def test_it_is_compared_and_saved(self, admin_client: Client, seat: Seat, address: str) -> None:
        page = admin_client.get(address)
        change(Seat, seat.pk, price="12.00")
        conflict = admin_client.post(address, fill(page, guest="Bob"))
        assert conflict.status_code == 409
        assert admin_client.post(address, fill(conflict)).status_code == 302
        assert (stored(seat).guest, stored(seat).price) == ("Bob", 12)

    def test_who_changed_a_row_of_it_is_told(self, admin_client: Client, seat: Seat, address: str) -> None:
        Order.objects.create(seat=seat, dish="soup")
        page = admin_client.get(address)
        admin_client.post(address, fill(page, order_set__0__dish="stew"))
        conflict = admin_client.post(address, fill(page, order_set__0__dish="broth"))
        assert ", admin: Changed Dish for order “stew”." in text_of(conflict)


def test_a_key_that_is_typed_over_makes_a_copy_as_in_djangos(admin_client: Client, db: None) -> None:
    seat = OddSeat.objects.create(code="A1", guest="Ada")
    assert admin_client.post(url(seat), fill(admin_client.get(url(seat)), code="B1")).status_code == 302
    assert list(OddSeat.objects.order_by("code").values_list("code", "version")) == [("A1", 1), ("B1", 1)]


# What a form keeps closed is not the request's to open: decisions only ever leave something out


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
def test_a_decision_not_asked_for_changes_nothing(admin_client: Client, seat: Seat, name: str, side: str) -> None:
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


def test_a_declared_field_that_is_only_shown_is_not_needed(admin_client: Client, seat: Seat, monkeypatch: Any) -> None:
    class Declaring(forms.ModelForm):  # type: ignore[type-arg]
        price = forms.DecimalField()

    monkeypatch.setattr(SeatAdmin, "form", Declaring)
    monkeypatch.setattr(SeatAdmin, "readonly_fields", ("price",))
    data = fill(admin_client.get(url(seat)), guest="Bob", choice__price="mine")
    assert admin_client.post(url(seat), data).status_code == 302
    assert list(Seat.objects.values_list("guest", "price")) == [("Bob", 10)]
