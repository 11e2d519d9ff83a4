"""Staff see accounts and their ledger, open accounts, change their terms, and cannot bend the books."""

from typing import Any

import pytest
from django.test import Client

from accounts.models import Account, Entry
from tests.django_lockstep.admin.browsing import choose, fill, text_of, url
from tests.support.factories import AccountFactory, UserFactory


def test_the_lists_and_pages_open(admin_client: Client, account: Account) -> None:
    Account.deposit(account.pk, 5)
    entry = Entry.objects.get()
    for path in ("account/", f"account/{account.pk}/change/", "account/add/", "entry/", f"entry/{entry.pk}/change/"):
        assert admin_client.get(f"/admin/accounts/{path}").status_code == 200
    for address in ("/admin/lockstep_monitor/lock/", "/lab/"):
        assert f'href="{address}"'.encode() in admin_client.get("/admin/accounts/account/").content
    assert b"105" in admin_client.get(f"/admin/accounts/account/?q={account.user.username}").content
    assert b"0 accounts" in admin_client.get("/admin/accounts/account/?q=nobody").content


@pytest.mark.parametrize(("sign", "number"), [("gt", 1), ("exact", 2), ("lt", 1), ("nonsense", 4)])
def test_accounts_are_filtered_by_balance(admin_client: Client, db: None, sign: str, number: int) -> None:
    for balance in (7, 0, 0, -7):
        AccountFactory.create(balance=balance, overdraft_limit=10)
    page: Any = admin_client.get(f"/admin/accounts/account/?sign={sign}")
    assert page.context_data["cl"].result_count == number


@pytest.mark.parametrize("field", ["balance", "overdraft_limit"])
@pytest.mark.parametrize("text", ["1E+5", "1_0", "\u0663", "NaN"])
def test_money_is_written_in_plain_digits(admin_client: Client, field: str, text: str) -> None:
    form = {"user": UserFactory.create().pk, "balance": "0", "overdraft_limit": "0", field: text}
    response = admin_client.post("/admin/accounts/account/add/", form)
    assert (response.status_code, "Enter a number." in text_of(response)) == (200, True)
    assert not Account.objects.exists()


def test_an_account_can_be_opened(admin_client: Client) -> None:
    form = {"user": UserFactory.create().pk, "balance": "7.00", "overdraft_limit": "0"}
    assert admin_client.post("/admin/accounts/account/add/", form).status_code == 302
    account = Account.objects.get()
    assert (account.balance, account.version) == (7, 1)


def test_its_terms_can_be_changed_and_its_balance_cannot(admin_client: Client, account: Account) -> None:
    form = fill(admin_client.get(url(account)), balance="1000000", overdraft_limit="5")
    assert admin_client.post(url(account), form).status_code == 302
    account.refresh_from_db()
    assert (account.balance, account.overdraft_limit, account.version) == (100, 5, 2)


def test_a_deposit_meanwhile_is_a_conflict_of_terms_no_more(admin_client: Client, account: Account) -> None:
    form = fill(admin_client.get(url(account)), overdraft_limit="5.00")
    Account.deposit(account.pk, 7)
    conflict = admin_client.post(url(account), form)
    assert conflict.status_code == 409
    assert admin_client.post(url(account), choose(conflict, "mine", "overdraft_limit")).status_code == 302
    account.refresh_from_db()
    assert (account.balance, account.overdraft_limit) == (107, 5)


def test_a_limit_that_the_balance_is_beyond_is_refused(admin_client: Client) -> None:
    account = AccountFactory.create(balance=-7, overdraft_limit=10)
    response = admin_client.post(url(account), fill(admin_client.get(url(account)), overdraft_limit="5"))
    assert response.status_code == 200
    assert "The balance is already -7.00." in text_of(response)


def test_entries_are_shown_in_pages_the_newest_first(admin_client: Client, account: Account) -> None:
    for _ in range(21):
        Account.deposit(account.pk, 1)
    first, second = (text_of(admin_client.get(url(account) + f"?entries={page}")) for page in (1, 2))
    assert "+1.00 = 121.00" in first
    assert "+1.00 = 101.00" not in first
    assert "Page 1 of 2 Older" in first
    assert "+1.00 = 101.00" in second
    assert "Newer Page 2 of 2" in second


def test_terms_can_be_changed_from_any_page_of_entries(admin_client: Client, account: Account) -> None:
    for _ in range(21):
        Account.deposit(account.pk, 1)
    address = url(account) + "?entries=2"
    assert admin_client.post(address, fill(admin_client.get(address), overdraft_limit="5")).status_code == 302
    assert Account.objects.get().overdraft_limit == 5


@pytest.mark.parametrize("path", ["entry/add/", "entry/1/delete/", "entry/1/change/"])
def test_the_ledger_is_final(admin_client: Client, account: Account, path: str) -> None:
    Account.deposit(account.pk, 5)
    path = path.replace("/1/", f"/{Entry.objects.get().pk}/")
    assert admin_client.post(f"/admin/accounts/{path}", {"post": "yes"}).status_code == 403


def test_an_account_with_entries_is_there_to_stay(admin_client: Client, account: Account) -> None:
    Account.deposit(account.pk, 5)
    address = admin_client.get(url(account, "delete")).headers["Location"]
    assert "Cannot delete account" in text_of(admin_client.get(address))
    admin_client.post(address, {"post": "yes"})
    assert Account.objects.count() == 1
