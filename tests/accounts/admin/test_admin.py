"""The admin of accounts: deposits, withdrawals and transfers by hand; the accounts and their ledger."""

from concurrent.futures import ThreadPoolExecutor
from http.cookies import SimpleCookie
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connections
from django.test import Client

from accounts.models import Account, Entry
from tests.django_lockstep.admin.browsing import choose, fill, messages_of, text_of, url
from tests.support.factories import AccountFactory, UserFactory, client_of_staff
from tests.support.sessions import Session

pytestmark = pytest.mark.django_db

LOCKINGS = ["pessimistic", "optimistic"]


def balance_of(account: Account) -> int:
    return int(Account.objects.get(pk=account.pk).balance)


def book(client: Client, account: Account, operation: str, **typed: Any) -> Any:
    """Open the form of the operation, and send what was typed."""
    address = url(account, operation)
    return client.post(address, fill(client.get(address), **typed))


def logged() -> list[str]:
    return [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]


@pytest.fixture
def target(db: None) -> Account:
    return AccountFactory.create()


@pytest.mark.parametrize("locking", LOCKINGS)
class TestBooking:
    @pytest.mark.parametrize(("operation", "balance"), [("deposit", 105), ("withdraw", 95)])
    def test_is_done_and_logged(
        self, admin_client: Client, account: Account, operation: str, balance: int, locking: str
    ) -> None:
        response = book(admin_client, account, operation, amount="5", locking=locking)
        assert (response.status_code, balance_of(account)) == (302, balance)
        assert messages_of(admin_client, response) == [f"Done: the balance is {balance}.00."]
        entry = Entry.objects.get()
        assert logged() == [f"{operation.title()} ({locking}), entry {entry.pk}: {entry}"]

    def test_moves_money_to_target(self, admin_client: Client, account: Account, target: Account, locking: str) -> None:
        assert book(admin_client, account, "transfer", amount="5", locking=locking, target=target.pk).status_code == 302
        assert (balance_of(account), balance_of(target)) == (95, 5)
        assert {entry.object_id for entry in LogEntry.objects.all()} == {str(account.pk), str(target.pk)}

    @pytest.mark.parametrize("operation", ["deposit", "withdraw", "transfer"])
    def test_a_form_that_is_sent_twice_books_once(
        self, admin_client: Client, account: Account, target: Account, operation: str, locking: str
    ) -> None:
        address = url(account, operation)
        data = fill(admin_client.get(address), amount="5", locking=locking, target=target.pk)
        assert [admin_client.post(address, data).status_code for _ in range(2)] == [302, 302]
        entries = 2 if operation == "transfer" else 1
        assert (Entry.objects.count(), LogEntry.objects.count()) == (entries, entries)

    @pytest.mark.django_db(transaction=True)
    def test_so_does_one_sent_eight_times_at_once(self, admin_client: Client, account: Account, locking: str) -> None:
        address = url(account, "deposit")
        data = fill(admin_client.get(address), amount="5", locking=locking)

        def send(_: int) -> int:
            client = Client()
            client.cookies = SimpleCookie(admin_client.cookies)
            try:
                return client.post(address, data).status_code
            finally:
                connections.close_all()

        with ThreadPoolExecutor(8) as pool:
            statuses = set(pool.map(send, range(8)))
        assert 302 in statuses
        assert statuses <= {302, 409}
        assert (balance_of(account), Entry.objects.count(), LogEntry.objects.count()) == (105, 1, 1)

    def test_what_is_not_covered_is_refused(self, admin_client: Client, account: Account, locking: str) -> None:
        response = book(admin_client, account, "withdraw", amount="101", locking=locking)
        assert (response.status_code, balance_of(account), LogEntry.objects.count()) == (200, 100, 0)
        assert "not enough for 101" in text_of(response)


class TestMeanwhile:
    def test_pessimistic_books_on_top(self, admin_client: Client, account: Account) -> None:
        address = url(account, "deposit")
        data = fill(admin_client.get(address), amount="5", locking="pessimistic")
        Account.deposit(account.pk, 7)
        assert (admin_client.post(address, data).status_code, balance_of(account)) == (302, 112)

    @pytest.mark.parametrize("operation", ["deposit", "withdraw", "transfer"])
    def test_optimistic_asks_again(
        self, admin_client: Client, account: Account, target: Account, operation: str
    ) -> None:
        address = url(account, operation)
        data = fill(admin_client.get(address), amount="5", locking="optimistic", target=target.pk)
        Account.deposit(account.pk, 7)
        response = admin_client.post(address, data)
        assert (response.status_code, balance_of(account), LogEntry.objects.count()) == (409, 107, 0)
        assert "Nothing was booked." in text_of(response)
        assert "Balance 107.00" in text_of(response)
        again = fill(response, target=target.pk, locking="optimistic")
        assert (again["amount"], admin_client.post(address, again).status_code) == (["5"], 302)

    @pytest.mark.django_db(transaction=True)
    def test_a_lock_timeout_is_reported(
        self, admin_client: Client, account: Account, other: Session, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr("accounts.admin.booking.WAIT", 0.05)
        with other.holding(Account.deposit, account.pk, 7):
            response = book(admin_client, account, "deposit", amount="5", locking="pessimistic")
        assert (response.status_code, balance_of(account)) == (409, 107)
        assert "locked by someone else" in text_of(response)


class TestRefused:
    @pytest.mark.parametrize("amount", ["", "0", "-5", "0.001", "many", "1E+5", "1_0", "\u0663", "0x10", "NaN"])
    def test_amounts(self, admin_client: Client, account: Account, amount: str) -> None:
        response = book(admin_client, account, "deposit", amount=amount, locking="pessimistic")
        assert (response.status_code, balance_of(account)) == (200, 100)

    @pytest.mark.parametrize("token", ["", "forged"])
    def test_forms_that_do_not_say_what_they_showed(self, admin_client: Client, account: Account, token: str) -> None:
        response = book(admin_client, account, "deposit", amount="5", locking="optimistic", _seen=token)
        assert (response.status_code, balance_of(account)) == (200, 100)

    def test_a_transfer_to_oneself(self, admin_client: Client, account: Account) -> None:
        response = book(admin_client, account, "transfer", amount="5", locking="optimistic", target=account.pk)
        assert "The target must be another account." in text_of(response)

    def test_another_amount_with_a_form_that_was_booked(self, admin_client: Client, account: Account) -> None:
        address = url(account, "deposit")
        data = fill(admin_client.get(address), amount="5", locking="pessimistic")
        admin_client.post(address, data)
        response = admin_client.post(address, data | {"amount": "6"})
        assert (response.status_code, balance_of(account)) == (200, 105)
        assert "belongs to another operation" in text_of(response)

    def test_accounts_that_are_not_there(self, admin_client: Client, db: None) -> None:
        assert admin_client.get("/admin/accounts/account/4711/deposit/").status_code == 404


class TestPermissions:
    @pytest.mark.parametrize("operation", ["deposit", "withdraw", "transfer"])
    def test_each_operation_has_its_own(self, account: Account, operation: str) -> None:
        client = client_of_staff("view_account", f"{operation}_account")
        allowed = {
            name for name in ("deposit", "withdraw", "transfer") if client.get(url(account, name)).status_code == 200
        }
        assert allowed == {operation}
        page = client.get(url(account)).content.decode()
        assert [name for name in ("deposit", "withdraw", "transfer") if f"/{name}/" in page] == [operation]

    def test_change_is_none_of_them(self, account: Account) -> None:
        client = client_of_staff("view_account", "change_account")
        assert client.post(url(account, "deposit"), {"amount": "5"}).status_code == 403

    @pytest.mark.parametrize("locking", LOCKINGS)
    def test_what_is_on_the_account_is_not_theirs_to_see(self, account: Account, locking: str) -> None:
        Account.deposit(account.pk, 11_234)
        client = client_of_staff("withdraw_account")
        address = url(account, "withdraw")
        page = client.get(address)
        refused = client.post(address, fill(page, amount="50000", locking=locking))
        done = client.post(address, fill(page, amount="1", locking=locking), follow=True)
        assert [balance_of(account), "does not cover" in text_of(refused), "Done." in text_of(done)] == [
            11_333,
            True,
            True,
        ]
        for response in (page, refused, done):
            assert not {"11334", "11333"} & set(text_of(response).replace(".00", "").replace(",", "").split())
            assert "Overdraft limit" not in text_of(response)


# Staff see accounts and their ledger, open accounts, change their terms, and cannot bend the books


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
