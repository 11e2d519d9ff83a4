"""What django-concurrency's own admin gets wrong: each holds for ours and fails for theirs."""

from functools import partial
from typing import Any

import pytest
from concurrency.config import CONCURRENCY_LIST_EDITABLE_POLICY_ABORT_ALL
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client

from tests.django_lockstep.admin.browsing import change, conflict_of, fill, messages_of, text_of, url
from tests.django_lockstep.admin.urls import PlainSeatAdmin, SeatAdmin
from tests.django_lockstep.test_concurrency_bugs import model
from tests.support.sessions import Gate, Session, overtaken
from tests.testapps.shop.models import Order, PlainOrder, PlainSeat, Seat

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.admin.urls")]

__all__ = ["model"]

TOKEN = {Seat: "_seen", PlainSeat: "version"}
ORDER: dict[Any, Any] = {Seat: Order, PlainSeat: PlainOrder}


@pytest.fixture
def seat(model: Any) -> Any:
    return model.objects.create(guest="Ada")


@pytest.fixture
def staff(admin_client: Client, settings: Any) -> Client:
    """Somebody who gets an answer whatever happens, from a site with django-concurrency's middleware."""
    ours, theirs = "django_lockstep.http.ConcurrencyMiddleware", "concurrency.middleware.ConcurrencyMiddleware"
    settings.MIDDLEWARE = [theirs if name == ours else name for name in settings.MIDDLEWARE]
    admin_client.raise_request_exception = False
    return admin_client


def guest(seat: Any) -> str:
    return str(type(seat).objects.get(pk=seat.pk).guest)


@pytest.mark.parametrize("either", [Seat, PlainSeat])
def test_both_save_where_nobody_is_in_the_way(staff: Client, either: Any) -> None:
    seat = either.objects.create(guest="Ada")
    assert staff.post(url(seat), fill(staff.get(url(seat)), guest="Bob")).status_code == 302
    assert edited(staff, seat, staff.get(url(seat, "list")), form__0__guest="Cid").status_code == 302
    assert guest(seat) == "Cid"


@pytest.mark.django_db(transaction=True)
def test_success_is_told_only_of_what_was_saved(staff: Client, model: Any, seat: Any, other: Session) -> None:
    data = fill(staff.get(url(seat)), guest="Bob")
    meanwhile = partial(change, model, seat.pk, guest="Eve")
    response = overtaken(other, Gate("UPDATE"), meanwhile, staff.post, url(seat), data)
    assert guest(seat) == "Eve"
    assert (response.status_code, messages_of(staff, response), LogEntry.objects.count()) == (409, [], 0)


def test_a_form_without_its_version_is_refused(staff: Client, model: Any, seat: Any) -> None:
    assert conflict_of(staff, seat, {"guest": "Eve"}, without=(TOKEN[model],), guest="Bob").status_code == 200
    assert guest(seat) == "Eve"


def test_the_version_of_another_object_is_refused(staff: Client, model: Any, seat: Any) -> None:
    another = model.objects.create()
    change(model, another.pk, row="Z")
    data = fill(staff.get(url(seat)), guest="Bob")
    change(model, seat.pk, guest="Eve")
    token = fill(staff.get(url(another)))[TOKEN[model]]
    assert staff.post(url(seat), data | {TOKEN[model]: token}).status_code == 200
    assert guest(seat) == "Eve"


def test_a_forged_version_is_a_message(staff: Client, model: Any, seat: Any) -> None:
    data = fill(staff.get(url(seat)), guest="Bob")
    assert staff.post(url(seat), data | {TOKEN[model]: "1:forged"}).status_code == 200


def test_a_conflict_shows_both_sides_and_a_way_out(staff: Client, model: Any, seat: Any) -> None:
    conflict = conflict_of(staff, seat, {"guest": "Eve"}, guest="Bob")
    assert conflict.status_code == 409
    assert {"Ada", "Eve", "Bob"} <= set(text_of(conflict).split())
    assert staff.post(url(seat), fill(conflict) | {"choice-guest": "mine"}).status_code == 302
    assert guest(seat) == "Bob"


def test_a_row_that_begins_at_version_0_is_compared_too(staff: Client, model: Any, seat: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {model._meta.db_table} SET version = 0")
    assert conflict_of(staff, seat, {"guest": "Eve"}, guest="Bob").status_code == 409
    assert guest(seat) == "Eve"


def test_a_conflict_in_an_inline_is_no_server_error(staff: Client, model: Any, seat: Any) -> None:
    order = ORDER[model].objects.create(seat=seat, dish="soup")
    page = staff.get(url(seat))
    change(ORDER[model], order.pk, dish="stew")
    prefix = f"{ORDER[model]._meta.model_name}_set-0-dish"
    response = staff.post(url(seat), fill(page) | {prefix: "broth"})
    assert response.status_code == 409
    assert {"soup", "stew", "broth"} <= set(text_of(response).split())


def edited(staff: Client, seat: Any, page: Any, **typed: Any) -> Any:
    data = fill(page, without=("action", "index"), **{"_save": "Save", "form__0__guest": "Bob", **typed})
    return staff.post(url(seat, "list"), data)


def test_no_policy_for_lists_is_a_server_error(
    staff: Client, model: Any, seat: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for theirs_or_ours in (SeatAdmin, PlainSeatAdmin):
        monkeypatch.setattr(
            theirs_or_ours, "list_editable_policy", CONCURRENCY_LIST_EDITABLE_POLICY_ABORT_ALL, raising=False
        )
    page = staff.get(url(seat, "list"))
    change(model, seat.pk, guest="Eve")
    assert edited(staff, seat, page).status_code == 409
    assert guest(seat) == "Eve"


def test_versions_in_lists_are_signed(staff: Client, model: Any, seat: Any) -> None:
    page = staff.get(url(seat, "list"))
    change(model, seat.pk, guest="Eve")
    version = model.objects.get().version
    # What somebody would write who wants to get past the comparison.
    edited(staff, seat, page, **{f"form-_concurrency_version_{seat.pk}": str(version), "_seen": str(version)})
    assert guest(seat) == "Eve"


def test_a_conflict_in_a_list_keeps_what_was_typed(staff: Client, model: Any, seat: Any) -> None:
    page = staff.get(url(seat, "list"))
    change(model, seat.pk, guest="Eve")
    response = edited(staff, seat, page)
    assert response.status_code == 409
    assert "Bob" in text_of(response)


def test_a_stale_deletion_is_refused(staff: Client, model: Any, seat: Any) -> None:
    first = staff.get(url(seat, "delete"))
    address = first.headers.get("Location", url(seat, "delete"))
    page = staff.get(address)
    change(model, seat.pk, guest="Eve")
    assert staff.post(address, fill(page)).status_code == 409
    assert guest(seat) == "Eve"
