"""The admin shows what waits and what the rest came to, and changes nothing."""

import re
from typing import Any

import pytest
from django.contrib.admin import site
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from accounts.contrib.queued.consuming import drain
from accounts.contrib.queued.models import QueuedChange
from accounts.models import Account
from tests.django_lockstep.admin.browsing import text_of, url
from tests.support.factories import AccountFactory, UserFactory

PATH = "/admin/accounts_queued/queuedchange/"

pytestmark = pytest.mark.django_db


def row_of(client: Client, change: QueuedChange, query: str = "") -> dict[str, str]:
    """Return the change's row of the list, by the columns' names."""
    page = client.get(PATH + query).content.decode()
    (row,) = re.findall(rf"<tr>(?:(?!</tr>).)*queuedchange/{change.pk}/change/(?:(?!</tr>).)*</tr>", page, re.DOTALL)
    cells = re.findall(r'class="field-(\w+)[^"]*">(.*?)</t[dh]>', row, re.DOTALL)
    return {name: re.sub(r"<[^>]*>", "", cell) for name, cell in cells}


def found(client: Client, query: str) -> set[int]:
    page: Any = client.get(PATH + query)
    return {change.pk for change in page.context_data["cl"].result_list}


def forget(account: Account) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM accounts_account WHERE id = %s", [account.pk])


def test_what_waits_and_since_when(admin_client: Client, account: Account) -> None:
    change = QueuedChange.deposit(account.pk, "2.50")
    QueuedChange.objects.filter(pk=change.pk).update(queued_at="2020-01-01T00:00Z")
    row = row_of(admin_client, change)
    assert (row["source"], row["goal"], row["signed_amount"]) == (str(account), "-", "2.50")
    assert (row["state"], row["outcome"]) == ("pending", "-")
    assert re.fullmatch(r"\d{4,} days, \d+:\d\d:\d\d", row["age"])


def test_what_it_came_to(admin_client: Client, account: Account) -> None:
    Account.deposit(account.pk, 1, idempotency_key="k")
    again = QueuedChange.deposit(account.pk, 1, idempotency_key="k")
    applied, refused = QueuedChange.withdraw(account.pk, 1), QueuedChange.withdraw(account.pk, 500)
    drain(QueuedChange)
    assert row_of(admin_client, again)["outcome"] == "balance 101.00, applied before"
    row = row_of(admin_client, applied)
    assert (row["signed_amount"], row["state"], row["outcome"]) == ("-1.00", "applied", "balance 100.00")
    assert row["age"] == "-"
    row = row_of(admin_client, refused)
    assert row["state"] == "refused"
    assert row["outcome"] == "not covered: balance 100.00, overdraft limit 0.00"


def test_every_refusal_has_its_words(admin_client: Client, account: Account) -> None:
    full = AccountFactory.create(balance="99999999999999999.00")
    Account.deposit(account.pk, 1, idempotency_key="k")
    reused, too_much = QueuedChange.deposit(account.pk, 7, idempotency_key="k"), QueuedChange.deposit(full.pk, 5)
    later = QueuedChange.deposit(account.pk, 3)
    drain(QueuedChange)
    QueuedChange.objects.filter(pk=later.pk).update(state="refused", refusal={"error": "Frozen", "message": "frozen"})
    assert row_of(admin_client, reused)["outcome"] == "the idempotency key belongs to another change, with amount 1.00"
    assert row_of(admin_client, too_much)["outcome"] == "invalid: a balance has at most 17 digits before the point"
    assert row_of(admin_client, later)["outcome"] == "frozen"


def test_a_transfer_leaves_the_account(admin_client: Client, account: Account) -> None:
    target = AccountFactory.create()
    row = row_of(admin_client, QueuedChange.transfer(account.pk, target.pk, 5))
    assert (row["source"], row["goal"], row["signed_amount"]) == (str(account), str(target), "-5.00")


def test_the_change_page_shows_it_with_links_to_the_accounts(admin_client: Client, account: Account) -> None:
    target = AccountFactory.create()
    change = QueuedChange.transfer(account.pk, target.pk, 5, idempotency_key="order-7")
    drain(QueuedChange)
    page = admin_client.get(url(change))
    for words in ("-5.00", "order-7", "applied", "balance 95.00"):
        assert words in text_of(page)
    for each in (account, target):
        assert f'<a href="{url(each)}">{each}</a>'.encode() in page.content


@pytest.mark.parametrize("gone", ["account", "target"])
def test_changes_of_accounts_that_are_gone_are_listed(admin_client: Client, account: Account, gone: str) -> None:
    change = QueuedChange.transfer(account.pk, AccountFactory.create().pk, 5, idempotency_key="order-7")
    forget(getattr(change, gone))
    drain(QueuedChange)
    row = row_of(admin_client, change, "?q=order-7")
    assert row["source" if gone == "account" else "goal"] == f"{getattr(change, f'{gone}_id')} (deleted)"
    assert row["outcome"] == "an account does not exist any more"
    assert "(deleted)" in text_of(admin_client.get(url(change)))


def test_they_are_found_by_state_user_account_and_key(admin_client: Client, account: Account) -> None:
    applied = QueuedChange.deposit(account.pk, 1, idempotency_key="order-7").pk
    drain(QueuedChange)
    other = AccountFactory.create()
    pending = QueuedChange.deposit(other.pk, 1, idempotency_key="order-77").pk
    assert found(admin_client, "") == {applied, pending}
    assert found(admin_client, "?state__exact=pending") == {pending}
    assert found(admin_client, f"?q={account.user.get_username()}") >= {applied}
    assert found(admin_client, "?q=order-7") == {applied}
    assert found(admin_client, "?q=ORDER-7") == set()
    assert pending in found(admin_client, f"?q={other.pk}")


def test_a_list_costs_no_more_queries_for_more_rows_and_counts_once(admin_client: Client, account: Account) -> None:
    def cost() -> tuple[int, int]:
        with CaptureQueriesContext(connection) as captured:
            admin_client.get(f"{PATH}?state__exact=pending")
        return len(captured), len([entry for entry in captured if "COUNT(*)" in entry["sql"]])

    QueuedChange.transfer(account.pk, AccountFactory.create().pk, 1)
    few = cost()
    for _ in range(5):
        QueuedChange.transfer(AccountFactory.create().pk, AccountFactory.create().pk, 1)
    assert cost() == few
    assert few[1] == 1


def test_figures_are_in_the_readers_language(account: Account) -> None:
    change = QueuedChange.withdraw(account.pk, "1.50")
    drain(QueuedChange)
    with translation.override("de"):
        shown = site.get_model_admin(QueuedChange).outcome(QueuedChange.objects.get(pk=change.pk))  # type: ignore[attr-defined]
    assert shown == "balance 98,50"


def test_looking_is_a_permission(account: Account) -> None:
    change = QueuedChange.deposit(account.pk, 1)
    user, client = UserFactory.create(is_staff=True), Client()
    client.force_login(user)
    assert client.get(PATH).status_code == 403
    user.user_permissions.set(Permission.objects.filter(codename="view_queuedchange"))
    assert client.get(PATH).status_code == 200
    assert client.get(url(change)).status_code == 200


@pytest.mark.parametrize("path", ["add/", "{}/delete/", "{}/change/"])
def test_rows_are_not_for_forms(admin_client: Client, account: Account, path: str) -> None:
    change = QueuedChange.deposit(account.pk, 1)
    assert admin_client.post(PATH + path.format(change.pk), {"post": "yes"}).status_code == 403
