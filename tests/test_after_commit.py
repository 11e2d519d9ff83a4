"""What on_commit() raises comes after COMMIT: no handler repeats the work, or says that it was not done."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.db.models.signals import post_save
from django.test import Client

from accounts.models import Account, Entry
from django_lockstep.errors import CommittedThenFailed, LockNotAvailable, StaleVersionError, translated_errors
from django_lockstep.http import etag
from django_lockstep.http.problems import problem_of
from tests.django_lockstep.admin.browsing import fill, url
from tests.support.factories import AccountFactory
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def failing() -> Iterator[list[object]]:
    """Let a callback of every saved row meet a conflict with another row; yield the rows."""
    saved: list[object] = []

    def fail() -> None:
        raise StaleVersionError("of another row")

    def register(instance: Any, **kwargs: object) -> None:
        saved.append(instance)
        transaction.on_commit(fail)

    for model in (Seat, Entry):
        post_save.connect(register, sender=model, weak=False, dispatch_uid="fails after commit")
    yield saved
    for model in (Seat, Entry):
        post_save.disconnect(sender=model, dispatch_uid="fails after commit")


@pytest.mark.urls("tests.django_lockstep.http.views")
@pytest.mark.parametrize("kind", ["plain", "class", "rest", "problems", "ninja/seats"])
def test_http_does_not_answer_that_nothing_was_saved(kind: str, failing: list[object]) -> None:
    seat = Seat(guest="Ada")
    Seat.objects.bulk_create([seat])  # without a signal
    seat.refresh_from_db()
    client = Client(raise_request_exception=False, headers={"If-Match": etag(seat)})
    response = client.put(f"/{kind}/{seat.pk}", json.dumps({"guest": "Bob"}), content_type="application/json")
    assert (response.status_code, Seat.objects.get().guest, len(failing)) == (500, "Bob", 1)
    assert "Nothing was saved" not in response.content.decode()


def test_the_middleware_and_the_apis_have_no_answer_for_it() -> None:
    def fail() -> None:
        raise LockNotAvailable

    with pytest.raises(LockNotAvailable) as raised, translated_errors(), transaction.atomic():
        transaction.on_commit(fail)
    assert problem_of(raised.value) is None
    assert problem_of(LockNotAvailable()) is not None


@pytest.mark.parametrize("locking", ["pessimistic", "optimistic"])
def test_a_booking_by_hand_is_not_called_failed(admin_client: Client, failing: list[object], locking: str) -> None:
    account = AccountFactory.create(balance=100)
    address = url(account, "deposit")
    typed = fill(admin_client.get(address), amount="5", locking=locking)
    with pytest.raises(CommittedThenFailed, match="was committed, and then StaleVersionError"):
        admin_client.post(address, typed)
    assert (Account.objects.get().balance, Entry.objects.count(), len(failing)) == (105, 1, 1)


@pytest.mark.urls("tests.django_lockstep.admin.urls")
def test_a_list_is_not_saved_again(admin_client: Client, failing: list[object]) -> None:
    Seat.objects.bulk_create([Seat(guest="Ada"), Seat(guest="Bea")])
    page = admin_client.get("/admin/shop/seat/")
    typed = fill(page, without=("action", "index"), _save="Save", form__0__guest="Ann", form__1__guest="Ben")
    with pytest.raises(CommittedThenFailed):
        admin_client.post("/admin/shop/seat/", typed)
    assert sorted(Seat.objects.values_list("guest", flat=True)) == ["Ann", "Ben"]
    assert len(failing) == 2
