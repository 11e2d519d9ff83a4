"""Balances and entries are compared, and each place where they do not fit is found."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import CommandError
from pytest_django import Settings

from accounts.contrib.dynamodb import DynamoAccount, account_breaks, chain_breaks
from accounts.contrib.dynamodb.entries import account_key
from django_lockstep.stores import DynamoStore
from django_lockstep.stores.dynamodb.client import Client
from tests.support.reconcile import reconcile


def booked(pk: str = "ada") -> DynamoAccount:
    """Return an account with 100 that has three entries."""
    DynamoAccount.open(pk, balance=100)
    for amount in (10, 20, 30):
        DynamoAccount.deposit(pk, amount, idempotency_key=str(amount))
    return DynamoAccount.get(pk)


def tamper(key: str, **changes: object) -> None:
    store = DynamoStore.named("dynamodb")
    item = store.read(key)
    assert item is not None
    assert store.update_if_unchanged(key, changes, version=item.version)


def remove(key: str) -> None:
    store = DynamoStore.named("dynamodb")
    item = store.read(key)
    assert item is not None
    assert store.delete_if_unchanged(key, version=item.version)


def key_of(account: DynamoAccount, amount: int) -> str:
    (key,) = (entry.key for entry in account.entries() if entry.amount == amount)
    return key


def breaks_of(pk: str = "ada") -> list[tuple[str, Any, str, str]]:
    breaks = account_breaks(DynamoAccount.get(pk))
    return [(gap.kind, gap.entry, str(gap.expected), str(gap.stored)) for gap in breaks]


@pytest.mark.usefixtures("options")
class TestOneAccount:
    def test_right_books_are_right(self) -> None:
        DynamoAccount.open("bob")
        assert breaks_of("bob") == []
        booked()
        assert breaks_of() == []

    def test_entries_that_come_meanwhile_are_not_missed(self) -> None:
        account = booked()
        DynamoAccount.withdraw("ada", 1)
        assert list(account_breaks(account)) == []

    def test_a_balance_without_an_entry(self) -> None:
        account = booked()
        tamper(account_key("ada"), balance=Decimal(161))
        assert breaks_of() == [("balance", account.last_entry, "160.00", "161.00")]

    def test_a_balance_without_any_entry(self) -> None:
        DynamoAccount.open("bob")
        tamper(account_key("bob"), balance=1)
        assert breaks_of("bob") == [("balance", None, "0.00", "1.00")]

    def test_an_amount_that_was_changed(self) -> None:
        key = key_of(booked(), 20)
        tamper(key, amount=21)
        assert breaks_of() == [("entry", key, "131.00", "130.00")]

    def test_an_opening_that_was_changed(self) -> None:
        key = key_of(booked(), 10)
        tamper(account_key("ada"), opening_balance=90)
        assert breaks_of() == [("opening", key, "90.00", "100.00")]

    def test_versions_that_do_not_grow(self) -> None:
        account = booked()
        first, last = key_of(account, 10), key_of(account, 30)
        tamper(first, version_after=account.version)
        assert [gap[:2] for gap in breaks_of()] == [("version", key_of(account, 20))]
        tamper(last, version_after=account.version + 9)
        assert [gap[:2] for gap in breaks_of()] == [("version", last), ("version", key_of(account, 20))]

    @pytest.mark.parametrize(("amount", "left"), [(10, 2), (20, 1), (30, 0)])
    def test_an_entry_that_is_gone(self, amount: int, left: int) -> None:
        account = booked()
        remove(key_of(account, amount))
        assert [gap[0::2] for gap in breaks_of()] == [("count", "3")]
        assert breaks_of()[0][3] == str(left)

    def test_a_circle_ends(self) -> None:
        account = booked()
        tamper(key_of(account, 20), previous=key_of(account, 30))
        assert [gap[0] for gap in breaks_of()] == ["entry", "version", "opening"]


@pytest.fixture
def all_books(options: dict[str, Any]) -> Callable[[], list[tuple[str, str, str, str]]]:
    """Return the breaks of all accounts."""
    return lambda: [(gap.account, gap.kind, str(gap.expected), str(gap.stored)) for gap in chain_breaks()]


@pytest.mark.slow
class TestAllAccounts:
    def test_all_are_checked(self, all_books: Callable[[], list[Any]]) -> None:
        booked(), booked("bob"), DynamoAccount.open("eve")
        DynamoStore.named("dynamodb").put_if_absent("something else", {"balance": 1})
        DynamoAccount.transfer("ada", "bob", 1)
        assert all_books() == []
        tamper(account_key("bob"), balance=7)
        assert all_books() == [("bob", "balance", "161.00", "7.00")]

    def test_an_entry_that_is_in_no_chain(self, all_books: Callable[[], list[Any]]) -> None:
        account = booked()
        tamper(account_key("ada"), entry_count=2, last_entry=key_of(account, 20), balance=130)
        assert all_books() == [("ada", "count", "2", "3")]

    def test_entries_without_an_account(self, all_books: Callable[[], list[Any]]) -> None:
        booked(), booked("bob")
        remove(account_key("ada"))
        assert all_books() == [("ada", "count", "0", "3")]

    def test_large_tables_are_paged(self, all_books: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
        booked(), booked("bob")
        remove(account_key("bob"))
        call, pages = Client.call, []

        def small(client: Client, operation: str, **request: Any) -> dict[str, Any]:
            if operation != "scan":
                return call(client, operation, **request)
            pages.append(call(client, operation, Limit=2, **request))
            return pages[-1]

        monkeypatch.setattr(Client, "call", small)
        assert all_books() == [("bob", "count", "0", "3")]
        assert [len(page["Items"]) for page in pages[:3]] == [2, 2, 2]

    @pytest.mark.django_db
    def test_the_command_prints_them(self, all_books: Callable[[], list[Any]]) -> None:
        account = booked()
        assert reconcile(store="dynamodb") == (0, "", "Every balance of store 'dynamodb' matches its entries.\n")
        tamper(account_key("ada"), balance=7)
        code, out, err = reconcile(store="dynamodb", format="json")
        assert (code, err) == (1, "1 break found.\n")
        line = {
            "kind": "balance",
            "account": "ada",
            "entry": account.last_entry,
            "expected": "160.00",
            "stored": "7.00",
        }
        assert json.loads(out) == line

    @pytest.mark.django_db
    def test_a_missing_table_is_named(self, options: dict[str, Any], settings: Settings) -> None:
        settings.LOCKSTEP_STORES = {"dynamodb": {**options, "TABLE": "missing"}}
        with pytest.raises(CommandError, match="create_stores makes the table"):
            reconcile(store="dynamodb")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "words"), [("postgresql", "store 'postgresql' is not on DynamoDB"), ("nowhere", "no store 'nowhere'")]
)
def test_a_store_without_a_list_of_accounts_is_wrong_usage(settings: Settings, name: str, words: str) -> None:
    settings.LOCKSTEP_STORES = {}
    with pytest.raises(CommandError, match=words) as error:
        reconcile(store=name)
    assert error.value.returncode == 2
