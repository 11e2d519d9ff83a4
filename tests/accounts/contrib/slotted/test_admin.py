"""The admin opens slotted accounts, shows exact sums, and leaves the slots alone."""

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.contrib.staticfiles import finders
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.contrib.slotted.admin import SlottedAccountAdmin
from accounts.contrib.slotted.models import Slot, SlottedAccount
from tests.django_lockstep.admin.browsing import fill, text_of, url
from tests.support.factories import UserFactory

PATH = "/admin/accounts_slotted/slottedaccount/"

pytestmark = pytest.mark.django_db


@pytest.fixture
def slotted(db: None) -> SlottedAccount:
    return SlottedAccount.open(UserFactory.create(), size=3, balance="100.00", overdraft_limit="0.50")


def listed(client: Client, query: str = "") -> list[SlottedAccount]:
    page: Any = client.get(PATH + query)
    return list(page.context_data["cl"].result_list)


def test_the_list_has_exact_sums_in_one_statement(admin_client: Client, slotted: SlottedAccount) -> None:
    for balance in range(4):
        SlottedAccount.open(UserFactory.create(), size=5, balance=balance)
    with CaptureQueriesContext(connection) as captured:
        page = admin_client.get(PATH)
    assert len([entry for entry in captured if "accounts_slotted_slot" in entry["sql"] and "SUM" in entry["sql"]]) == 1
    assert b'<td class="field-balance">100.00</td><td class="field-overdraft_limit">0.50</td>' in page.content


def test_an_account_without_slots_has_nothing(admin_client: Client) -> None:
    account = SlottedAccount.objects.create(user=UserFactory.create())
    assert b'<td class="field-balance">0.00</td>' in admin_client.get(PATH).content
    assert SlottedAccount.objects.with_totals().get() == account


def test_it_is_found_by_user_and_number_and_sorted_by_balance(admin_client: Client, slotted: SlottedAccount) -> None:
    poor = SlottedAccount.open(UserFactory.create(username="zoe"), balance=1)
    assert listed(admin_client, "?q=zoe") == [poor]
    assert slotted in listed(admin_client, f"?q={slotted.pk}")
    assert listed(admin_client, "?o=4") == [poor, slotted]
    assert listed(admin_client, "?o=-4") == [slotted, poor]


def test_the_page_shows_its_slots(admin_client: Client, slotted: SlottedAccount) -> None:
    page = text_of(admin_client.get(url(slotted)))
    assert all(words in page for words in ("100.00", "0.50", str(slotted.slots.get(number=0)), "33.34"))
    assert page.count("33.33") == 2


def test_one_is_opened_with_a_size_and_a_limit(admin_client: Client) -> None:
    user = UserFactory.create()
    data = fill(admin_client.get(f"{PATH}add/"), user=user.pk, size="3", overdraft_limit="1.00")
    assert admin_client.post(f"{PATH}add/", data).status_code == 302
    account = SlottedAccount.objects.get()
    assert (account.user, account.size, account.totals()) == (user, 3, (0, 1))
    assert account.slots.count() == 3
    assert LogEntry.objects.get().object_id == str(account.pk)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ({"size": "0"}, "greater than or equal to 1"),
        ({"size": "40000"}, "less than or equal to 32767"),
        ({"overdraft_limit": "-1"}, "greater than or equal to 0"),
        ({"overdraft_limit": "0.001"}, "no more than 2 decimal places"),
    ],
)
def test_what_no_account_can_have_is_refused(admin_client: Client, typed: dict[str, str], message: str) -> None:
    data = fill(admin_client.get(f"{PATH}add/"), user=UserFactory.create().pk)
    assert message in text_of(admin_client.post(f"{PATH}add/", data | typed))
    assert not SlottedAccount.objects.exists()


def staff(*permissions: str) -> Client:
    user, client = UserFactory.create(is_staff=True), Client()
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client.force_login(user)
    return client


def test_looking_and_opening_are_permissions(slotted: SlottedAccount) -> None:
    assert staff().get(PATH).status_code == 403
    looking = staff("view_slottedaccount", "view_slot")
    assert (looking.get(url(slotted)).status_code, looking.get(f"{PATH}add/").status_code) == (200, 403)
    assert "33.34" in text_of(looking.get(url(slotted)))
    assert staff("add_slottedaccount").get(f"{PATH}add/").status_code == 200


@pytest.mark.parametrize("page", ["delete", "change"])
def test_nothing_is_changed_or_deleted_by_forms(admin_client: Client, slotted: SlottedAccount, page: str) -> None:
    assert admin_client.post(url(slotted, page), {"post": "yes", "size": "1"}).status_code == 403
    assert (Slot.objects.count(), slotted.balance) == (3, 100)


def test_its_style_sheet_comes_with_the_app() -> None:
    (sheet,) = SlottedAccountAdmin.Media.css["all"]
    assert "accounts/contrib/slotted/static" in str(finders.find(sheet))
