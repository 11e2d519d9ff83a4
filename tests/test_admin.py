"""Staff see accounts and their ledger, open accounts, and cannot bend either."""

import pytest
from django.test import Client

from accounts.models import Account, Entry
from tests.factories import UserFactory


@pytest.fixture
def staff(admin_client: Client) -> Client:
    return admin_client


def test_the_lists_and_pages_open(staff: Client, account: Account) -> None:
    Account.deposit(account.pk, 5)
    entry = Entry.objects.get()
    for path in ("account/", f"account/{account.pk}/change/", "account/add/", "entry/", f"entry/{entry.pk}/change/"):
        assert staff.get(f"/admin/accounts/{path}").status_code == 200
    assert b"105" in staff.get(f"/admin/accounts/account/?q={account.user.username}").content
    assert b"0 accounts" in staff.get("/admin/accounts/account/?q=nobody").content


def test_an_account_can_be_opened(staff: Client) -> None:
    form = {"user": UserFactory.create().pk, "balance": "7.00", "overdraft_limit": "0"}
    assert staff.post("/admin/accounts/account/add/", form).status_code == 302
    account = Account.objects.get()
    assert (account.balance, account.version) == (7, 1)


def test_a_balance_cannot_be_typed_over(staff: Client, account: Account) -> None:
    form = {"user": account.user_id, "balance": "1000000", "overdraft_limit": "5"}
    assert staff.post(f"/admin/accounts/account/{account.pk}/change/", form).status_code == 403
    account.refresh_from_db()
    assert (account.balance, account.overdraft_limit, account.version) == (100, 0, 1)


@pytest.mark.parametrize("path", ["entry/add/", "entry/1/delete/", "account/1/delete/"])
def test_what_must_not_be_done_is_forbidden(staff: Client, account: Account, path: str) -> None:
    Account.deposit(account.pk, 5)
    path = path.replace("/1/", f"/{account.pk if path.startswith('account') else Entry.objects.get().pk}/")
    assert staff.post(f"/admin/accounts/{path}", {"post": "yes"}).status_code == 403
