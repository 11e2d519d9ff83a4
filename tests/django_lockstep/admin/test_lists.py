"""Rows edited in a list, and actions on what is listed."""

from functools import partial
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from tests.django_lockstep.admin.browsing import change, choose, fill, messages_of, text_of
from tests.support.sessions import Gate, Session, gated, overtaken
from tests.testapps.shop.models import Seat

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.admin.urls")]

LIST = "/admin/shop/seat/"


@pytest.fixture
def seats(db: None) -> list[Seat]:
    """Three seats, as the list shows them: the newest first."""
    return [Seat.objects.create(guest=guest) for guest in ("Cid", "Bea", "Ada")][::-1]


def guests() -> list[str]:
    return list(Seat.objects.order_by("-pk").values_list("guest", flat=True))


def edit(client: Client, page: Any = None, **typed: str) -> Any:
    """Send the list with something typed into it."""
    return client.post(LIST, fill(page or client.get(LIST), without=("action", "index"), _save="Save", **typed))


class TestEditing:
    def test_saves_what_was_typed(self, admin_client: Client, seats: list[Seat]) -> None:
        response = edit(admin_client, form__0__guest="Ann", form__2__guest="Cleo")
        assert (response.status_code, guests()) == (302, ["Ann", "Bea", "Cleo"])
        assert messages_of(admin_client, response) == ["2 seats were changed successfully."]

    def test_tells_which_rows_were_saved_and_which_not(self, admin_client: Client, seats: list[Seat]) -> None:
        page = admin_client.get(LIST)
        change(Seat, seats[0].pk, guest="Eve")
        response = edit(admin_client, page, form__0__guest="Ann", form__1__guest="Ben")
        text = text_of(response)
        assert (response.status_code, guests()) == (409, ["Eve", "Ben", "Cid"])
        assert f"Saved rows: Seat object ({seats[1].pk})." in text
        assert f"Seat in row 1: Seat object ({seats[0].pk})" in text
        assert "Guest Please choose Ada Eve Ann" in text
        assert "1 seat was changed successfully." in text
        assert LogEntry.objects.get().object_id == str(seats[1].pk)

    @pytest.mark.parametrize(("decision", "guest"), [("mine", "Cleo"), ("theirs", "Eve")])
    def test_the_others_are_decided_on_the_page(
        self, admin_client: Client, seats: list[Seat], decision: str, guest: str
    ) -> None:
        page = admin_client.get(LIST)
        change(Seat, seats[2].pk, guest="Eve")
        conflict = edit(admin_client, page, form__1__guest="Ben", form__2__guest="Cleo", form__2__price="7.00")
        response = admin_client.post(LIST, choose(conflict, decision, "form-0-guest"))
        assert (response.status_code, guests()) == (302, ["Ada", "Ben", guest])
        assert Seat.objects.get(pk=seats[2].pk).price == 7

    def test_several_rows_wait_for_a_decision(self, admin_client: Client, seats: list[Seat]) -> None:
        page = admin_client.get(LIST)
        for seat in seats:
            change(Seat, seat.pk, guest="Eve")
        conflict = edit(admin_client, page, form__0__guest="Ann", form__2__guest="Cleo")
        data = choose(conflict, "mine", "form-0-guest", "form-1-guest")
        assert (admin_client.post(LIST, data).status_code, guests()) == (302, ["Ann", "Eve", "Cleo"])

    def test_rows_that_nobody_touched_here_are_left_alone(self, admin_client: Client, seats: list[Seat]) -> None:
        page = admin_client.get(LIST)
        change(Seat, seats[2].pk, guest="Eve")
        assert (edit(admin_client, page, form__0__guest="Ann").status_code, guests()) == (302, ["Ann", "Bea", "Eve"])

    def test_a_deleted_row_is_told_with_what_was_typed(self, admin_client: Client, seats: list[Seat]) -> None:
        page = admin_client.get(LIST)
        seats[0].delete()
        response = edit(admin_client, page, form__0__guest="Ann", form__1__guest="Ben")
        assert (response.status_code, guests()) == (409, ["Ben", "Cid"])
        assert "You typed: Guest Ann" in text_of(response)

    def test_a_typing_error_elsewhere_does_not_renew_the_list(self, admin_client: Client, seats: list[Seat]) -> None:
        page = admin_client.get(LIST)
        change(Seat, seats[0].pk, guest="Eve")
        error = edit(admin_client, page, form__0__guest="Ann", form__1__price="ten")
        assert error.status_code == 200
        assert edit(admin_client, error, form__1__price="9").status_code == 409
        assert guests()[0] == "Eve"

    @pytest.mark.parametrize("token", [[], ["forged"]])
    def test_a_row_without_its_token_is_refused(self, admin_client: Client, seats: list[Seat], token: Any) -> None:
        response = edit(admin_client, form__0__guest="Ann", _seen=token)
        assert (response.status_code, guests()[0]) == (200, "Ada")
        assert "did not contain the version" in text_of(response)
        conflict = edit(admin_client, response)
        assert conflict.status_code == 409

    @pytest.mark.django_db(transaction=True)
    def test_a_change_before_the_write_is_met(self, admin_client: Client, seats: list[Seat], other: Session) -> None:
        data = fill(admin_client.get(LIST), _save="Save", form__0__guest="Ann", form__1__guest="Ben")
        meanwhile = partial(change, Seat, seats[0].pk, guest="Eve")
        response = overtaken(other, Gate('UPDATE "shop_seat"'), meanwhile, admin_client.post, LIST, data)
        assert (response.status_code, guests()) == (409, ["Eve", "Ben", "Cid"])
        assert LogEntry.objects.get().object_id == str(seats[1].pk)


def act(client: Client, page: Any, action: str, *seats: Seat, **typed: Any) -> Any:
    chosen = {"action": action, "index": "0", "_selected_action": [str(seat.pk) for seat in seats]}
    return client.post(LIST, fill(page, **chosen | typed))


class TestActions:
    def test_run_on_what_is_as_it_was_listed(self, admin_client: Client, seats: list[Seat]) -> None:
        page = admin_client.get(LIST)
        change(Seat, seats[2].pk, guest="Eve")  # which is not chosen
        response = act(admin_client, page, "give_away", *seats[:2])
        assert (response.status_code, guests()) == (302, ["", "", "Eve"])

    def test_do_not_begin_if_one_was_changed(self, admin_client: Client, seats: list[Seat]) -> None:
        page = admin_client.get(LIST)
        change(Seat, seats[0].pk, guest="Eve")
        response = act(admin_client, page, "give_away", *seats[:2])
        assert (response.status_code, guests()) == (409, ["Eve", "Bea", "Cid"])
        assert f"Seat object ({seats[0].pk}) Version 1 was shown; the current version is 2." in text_of(response)
        assert "Guest Ada Eve" in text_of(response)
        assert f"Seat object ({seats[1].pk})" not in text_of(response)

    def test_do_not_begin_if_one_was_deleted(self, admin_client: Client, seats: list[Seat]) -> None:
        page = admin_client.get(LIST)
        pk = seats[0].pk
        seats[0].delete()
        response = act(admin_client, page, "give_away", *[Seat(pk=pk), seats[1]])
        assert (response.status_code, guests()) == (409, ["Bea", "Cid"])
        assert f"Seat {pk} It was deleted." in text_of(response)

    @pytest.mark.parametrize("token", [[], ["forged"]])
    def test_do_not_begin_without_tokens(self, admin_client: Client, seats: list[Seat], token: Any) -> None:
        response = act(admin_client, admin_client.get(LIST), "give_away", seats[0], _seen=token)
        assert (response.status_code, guests()[0]) == (409, "Ada")
        assert "The request did not contain the version that was shown." in text_of(response)

    def test_a_key_that_is_none_is_left_out(self, admin_client: Client, seats: list[Seat]) -> None:
        response = act(admin_client, admin_client.get(LIST), "give_away", _selected_action=["nonsense"])
        assert (response.status_code, guests()) == (302, ["Ada", "Bea", "Cid"])

    def test_all_on_every_page_are_taken_as_they_are(self, admin_client: Client, seats: list[Seat]) -> None:
        page = admin_client.get(LIST)
        Seat.objects.create(guest="Dora")
        assert act(admin_client, page, "give_away", seats[0], select_across="1").status_code == 302
        assert guests() == [""] * 4

    def test_even_then_what_was_listed_is_compared(self, admin_client: Client, seats: list[Seat]) -> None:
        page = admin_client.get(LIST)
        change(Seat, seats[2].pk, guest="Eve")
        assert act(admin_client, page, "give_away", seats[0], select_across="1").status_code == 409

    @pytest.mark.django_db(transaction=True)
    def test_nobody_gets_between_comparison_and_deed(
        self, admin_client: Client, seats: list[Seat], other: Session, open_session: Any
    ) -> None:
        page = admin_client.get(LIST)
        gate = Gate('UPDATE "shop_seat"')
        answer = other.start(gated, gate, lambda: act(admin_client, page, "give_away", *seats))
        gate.wait_until_reached()
        rival = open_session()
        late = rival.start(change, Seat, seats[2].pk, guest="Eve")
        rival.wait_until_blocked()
        gate.open()
        assert answer.result(20).status_code == 302
        assert "StaleVersionError" in type(late.exception(20)).__name__
        assert guests() == [""] * 3


class TestDeletingSeveral:
    def confirm(self, client: Client, *seats: Seat) -> Any:
        return act(client, client.get(LIST), "delete_selected", *seats)

    def test_what_was_confirmed_is_deleted(self, admin_client: Client, seats: list[Seat]) -> None:
        page = self.confirm(admin_client, *seats[:2])
        assert "Are you sure" in text_of(page)
        assert (admin_client.post(LIST, fill(page)).status_code, guests()) == (302, ["Cid"])

    def test_what_changed_after_the_question_is_not(self, admin_client: Client, seats: list[Seat]) -> None:
        page = self.confirm(admin_client, *seats[:2])
        change(Seat, seats[0].pk, guest="Eve")
        response = admin_client.post(LIST, fill(page))
        assert (response.status_code, guests(), LogEntry.objects.count()) == (409, ["Eve", "Bea", "Cid"], 0)

    def test_keys_alone_are_refused(self, admin_client: Client, seats: list[Seat]) -> None:
        data = fill(self.confirm(admin_client, seats[0])) | {"_selected_action": [str(seats[0].pk)]}
        assert (admin_client.post(LIST, data).status_code, Seat.objects.count()) == (409, 3)
