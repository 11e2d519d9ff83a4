"""What the database refuses to every writer: entries are for ever, and balances keep their limits."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from accounts.errors import EntryIsFinal
from accounts.models import Account, Entry


@pytest.fixture
def entry(account: Account) -> Entry:
    Account.deposit(account.pk, 50)
    return Entry.objects.get()


ORM: list[Callable[[Entry], Any]] = [
    lambda entry: entry.save(),
    lambda entry: entry.save(update_fields=["amount"]),
    lambda entry: entry.delete(),
    lambda entry: Entry.objects.update(amount=1),
    lambda entry: Entry.objects.all().delete(),
    lambda entry: Entry.objects.bulk_update([entry], ["amount"]),
    lambda entry: Entry.objects.filter(pk=entry.pk).delete(),
    lambda entry: Entry._base_manager.filter(pk=entry.pk).update(amount=1),
]


@pytest.mark.parametrize("change", ORM, ids=range(len(ORM)))
def test_the_orm_refuses(entry: Entry, change: Callable[[Entry], Any]) -> None:
    with pytest.raises(EntryIsFinal):
        change(entry)
    assert list(Entry.objects.values_list("amount", flat=True)) == [50]


@pytest.mark.parametrize("sql", ["UPDATE accounts_entry SET amount = 1", "DELETE FROM accounts_entry"])
def test_the_database_refuses(entry: Entry, sql: str) -> None:
    with (
        pytest.raises(IntegrityError, match="rows of accounts_entry are append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(sql)
    assert list(Entry.objects.values_list("amount", flat=True)) == [50]


def test_an_upsert_that_would_change_an_entry_is_refused(entry: Entry) -> None:
    entry.amount = 1
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        Entry.objects.bulk_create([entry], update_conflicts=True, unique_fields=["id"], update_fields=["amount"])


def test_an_account_with_entries_cannot_be_deleted(entry: Entry) -> None:
    with pytest.raises(IntegrityError):
        entry.account.delete()


def test_an_entry_says_what_it_did(entry: Entry) -> None:
    assert str(entry) == "+50.00 = 150.00"


# Accounts: the rules that the methods check too, with better errors.


@pytest.mark.parametrize("values", [{"balance": -1}, {"overdraft_limit": -1}, {"balance": -6, "overdraft_limit": 5}])
def test_the_database_refuses_what_the_rules_forbid(account: Account, values: dict[str, int]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Account.objects.filter(pk=account.pk).update(**values)


def test_a_user_with_an_account_cannot_be_deleted(account: Account) -> None:
    with pytest.raises(IntegrityError):
        account.user.delete()
