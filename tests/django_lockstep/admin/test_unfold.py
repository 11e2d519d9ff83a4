"""In a project with django-unfold everything goes the same way."""

import copy
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.test import Client, override_settings
from django.urls import path
from unfold.admin import ModelAdmin, TabularInline
from unfold.sites import UnfoldAdminSite

from accounts.admin.account import AccountAdmin, EntryAdmin
from accounts.models import Account, Entry
from django_lockstep.admin.versioned import VersionedInlineMixin
from tests.django_lockstep.admin.browsing import change, choose, fill, text_of, url
from tests.django_lockstep.admin.urls import SeatAdmin
from tests.testapps.shop.models import Order, Seat

# Until unfold 0.91 knows Django 6.1, whose words these are.
pytestmark = pytest.mark.filterwarnings("default:Overriding get_action_choices")


class UnfoldOrderInline(VersionedInlineMixin, TabularInline):  # type: ignore[misc]
    model = Order
    extra = 1


class UnfoldSeatAdmin(SeatAdmin, ModelAdmin):  # type: ignore[misc]
    inlines = (UnfoldOrderInline,)


class UnfoldAccountAdmin(AccountAdmin, ModelAdmin):  # type: ignore[misc]
    pass


class UnfoldEntryAdmin(EntryAdmin, ModelAdmin):  # type: ignore[misc]
    pass


site = UnfoldAdminSite(name="admin")
site.register(Seat, UnfoldSeatAdmin)
site.register(Account, UnfoldAccountAdmin)
site.register(Entry, UnfoldEntryAdmin)

urlpatterns = [path("admin/", site.urls)]


@pytest.fixture(autouse=True)
def unfold() -> Iterator[None]:
    """A project that has installed it, without changing the admin site of the others."""
    apps = ["unfold.apps.BasicAppConfig", *settings.INSTALLED_APPS]
    # The templates' setting is given again because its loaders remember where they looked.
    with override_settings(INSTALLED_APPS=apps, TEMPLATES=copy.deepcopy(settings.TEMPLATES), ROOT_URLCONF=__name__):
        yield


@pytest.fixture
def seat(db: None) -> Seat:
    seat = Seat.objects.create(guest="Ada")
    Order.objects.create(seat=seat, dish="soup")
    return seat


def test_a_conflict_is_shown_and_solved(admin_client: Client, seat: Seat) -> None:
    page = admin_client.get(url(seat))
    assert b"unfold" in page.content
    change(Seat, seat.pk, guest="Eve")
    change(Order, Order.objects.get().pk, dish="stew")
    conflict = admin_client.post(url(seat), fill(page, guest="Bob", order_set__0__dish="broth"))
    assert (conflict.status_code, b"unfold" in conflict.content) == (409, True)
    assert "Ada Eve Bob" in text_of(conflict)
    data = choose(conflict, "mine", "guest", "order_set-0-dish")
    assert admin_client.post(url(seat), data).status_code == 302
    assert (Seat.objects.get().guest, Order.objects.get().dish) == ("Bob", "broth")


def test_a_list_saves_what_it_can(admin_client: Client, seat: Seat) -> None:
    page = admin_client.get(url(seat, "list"))
    change(Seat, seat.pk, guest="Eve")
    data = fill(page, without=("action", "index"), _save="Save", form__0__guest="Bob")
    conflict = admin_client.post(url(seat, "list"), data)
    assert conflict.status_code == 409
    assert admin_client.post(url(seat, "list"), choose(conflict, "mine", "form-0-guest")).status_code == 302
    assert Seat.objects.get().guest == "Bob"


@pytest.mark.parametrize("action", ["give_away", "delete_selected"])
def test_actions_meet_what_was_listed(admin_client: Client, seat: Seat, action: str) -> None:
    chosen = {"action": action, "index": "0", "_selected_action": [str(seat.pk)]}
    data = fill(admin_client.get(url(seat, "list"))) | chosen
    change(Seat, seat.pk, guest="Eve")
    assert admin_client.post(url(seat, "list"), data).status_code == 409
    again = admin_client.post(url(seat, "list"), fill(admin_client.get(url(seat, "list"))) | chosen)
    if action == "delete_selected":
        assert admin_client.post(url(seat, "list"), fill(again)).status_code == 302
        assert Seat.objects.count() == 0


def test_a_stale_deletion_is_refused(admin_client: Client, seat: Seat) -> None:
    address = admin_client.get(url(seat, "delete")).headers["Location"]
    page = admin_client.get(address)
    change(Seat, seat.pk, guest="Eve")
    assert admin_client.post(address, fill(page)).status_code == 409


def test_money_is_booked_by_hand(admin_client: Client, account: Account) -> None:
    assert url(account, "deposit").encode() in admin_client.get(url(account)).content
    address = url(account, "deposit")
    data = fill(admin_client.get(address), amount="5", locking="optimistic")
    assert admin_client.post(address, data).status_code == 302
    assert "105.00" in text_of(admin_client.get(url(account)))
    assert admin_client.get(url(account, "list")).status_code == 200
