"""Deposits, withdrawals and transfers by hand."""

from concurrent.futures import ThreadPoolExecutor
from http.cookies import SimpleCookie
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.db import connections
from django.test import Client

from accounts.models import Account, Entry
from tests.django_lockstep.admin.browsing import fill, messages_of, text_of, url
from tests.support.factories import AccountFactory
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

    def test_moves_money_between_two(
        self, admin_client: Client, account: Account, target: Account, locking: str
    ) -> None:
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
    def test_so_does_one_that_is_sent_eight_times_at_once(
        self, admin_client: Client, account: Account, locking: str
    ) -> None:
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

    def test_what_the_account_does_not_cover_is_refused(
        self, admin_client: Client, account: Account, locking: str
    ) -> None:
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
    @pytest.fixture
    def clerk(self, client: Client, django_user_model: Any) -> Any:
        user = django_user_model.objects.create(username="clerk", is_staff=True)
        client.force_login(user)
        return user

    @pytest.mark.parametrize("operation", ["deposit", "withdraw", "transfer"])
    def test_each_operation_has_its_own(self, client: Client, clerk: Any, account: Account, operation: str) -> None:
        clerk.user_permissions.set(Permission.objects.filter(codename__in=["view_account", f"{operation}_account"]))
        allowed = {
            name for name in ("deposit", "withdraw", "transfer") if client.get(url(account, name)).status_code == 200
        }
        assert allowed == {operation}
        page = client.get(url(account)).content.decode()
        assert [name for name in ("deposit", "withdraw", "transfer") if f"/{name}/" in page] == [operation]

    def test_change_is_none_of_them(self, client: Client, clerk: Any, account: Account) -> None:
        clerk.user_permissions.set(Permission.objects.filter(codename__in=["view_account", "change_account"]))
        assert client.post(url(account, "deposit"), {"amount": "5"}).status_code == 403

    def test_the_deposit_permission_is_enough_to_deposit(self, client: Client, clerk: Any, account: Account) -> None:
        clerk.user_permissions.set(Permission.objects.filter(codename="deposit_account"))
        response = book(client, account, "deposit", amount="5", locking="pessimistic")
        assert (response.headers["Location"], balance_of(account)) == (url(account, "deposit"), 105)

    @pytest.mark.parametrize("locking", LOCKINGS)
    def test_what_is_on_the_account_is_not_theirs_to_see(
        self, client: Client, clerk: Any, account: Account, locking: str
    ) -> None:
        Account.deposit(account.pk, 11_234)
        clerk.user_permissions.set(Permission.objects.filter(codename="withdraw_account"))
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
