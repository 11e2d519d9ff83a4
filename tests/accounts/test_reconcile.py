"""``reconcile`` walks every chain in the database and prints each place where it does not fit."""

import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core import serializers
from django.core.management import CommandError
from django.db import IntegrityError, connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from accounts.errors import EntryIsFinal
from accounts.models import Account, Entry
from accounts.reconciliation import chain_breaks
from tests.support.factories import AccountFactory
from tests.support.reconcile import reconcile
from tests.support.sessions import query

pytestmark = pytest.mark.django_db


def test_right_books_are_right() -> None:
    for _ in range(3):
        account = AccountFactory.create(balance=100)
        Account.deposit(account.pk, 50)
        Account.withdraw(account.pk, 120)
    AccountFactory.create(balance=5)
    assert reconcile() == (0, "", "Every balance of accounts.Account matches its entries.\n")


def test_a_balance_without_an_entry_is_printed(account: Account) -> None:
    Account.deposit(account.pk, 50)
    Account.objects.update(balance=151)
    code, out, err = reconcile()
    entry = Entry.objects.get()
    assert (code, err) == (1, "1 break found.\n")
    assert out == f"account {account.pk}: after its last entry {entry.pk} the balance is 151.00, expected 150.00\n"


def test_an_entry_that_does_not_follow_is_printed(account: Account) -> None:
    Account.deposit(account.pk, 50)
    forged = Entry.objects.create(account=account, amount=Decimal(-30), balance_after=Decimal(70), version_after=3)
    Account.objects.update(balance=70)
    code, out, _ = reconcile(format="json")
    assert code == 1
    assert [json.loads(line) for line in out.splitlines()] == [
        {"kind": "entry", "account": account.pk, "entry": forged.pk, "expected": "120.00", "stored": "70.00"},
        {"kind": "count", "account": account.pk, "entry": forged.pk, "expected": "1", "stored": "2"},
    ]


def test_every_break_of_every_account_is_found_in_one_statement() -> None:
    for _ in range(5):
        account = AccountFactory.create(balance=100)
        Account.deposit(account.pk, 1)
        Entry.objects.create(account=account, amount=Decimal(1), balance_after=Decimal(0), version_after=3)
    with CaptureQueriesContext(connection) as captured:
        breaks = list(chain_breaks(Account))
    assert [gap.kind for gap in breaks] == ["entry", "version", "balance", "count"] * 5
    assert len(captured) == 1


@pytest.mark.parametrize("label", ["accounts.Nothing", "nowhere.Wallet", "nonsense", "accounts.Entry", "auth.User"])
def test_another_kind_of_model_is_wrong_usage(label: str) -> None:
    with pytest.raises(CommandError) as caught:
        reconcile(model=label)
    assert caught.value.returncode == 2


def past_the_models(sql: str, *params: Any) -> None:
    """Change entries as the owner of the table can: with the trigger off that refuses it."""
    query("SET CONSTRAINTS ALL IMMEDIATE")
    query("ALTER TABLE accounts_entry DISABLE TRIGGER USER")
    query(sql, *params)
    query("ALTER TABLE accounts_entry ENABLE TRIGGER USER")


@pytest.fixture
def entries(account: Account) -> list[Entry]:
    """Two pairs that come to nothing, so that the balances alone would not miss either."""
    for amount in (50, -50, 20, -20):
        Account.apply_many([(account.pk, amount)])
        Account.objects.update(overdraft_limit=F("overdraft_limit") + 1)
    return list(Entry.objects.all())


def test_changed_terms_break_nothing(entries: list[Entry]) -> None:
    assert Account.objects.get().version == 9
    assert not list(chain_breaks(Account))


@pytest.mark.parametrize(
    ("gone", "kinds"),
    [
        ([0], {"opening", "count"}),
        ([1], {"entry", "count"}),
        ([3], {"balance", "count"}),
        ([0, 1], {"count"}),
        ([1, 2], {"entry", "count"}),
        ([2, 3], {"count"}),
        ([0, 1, 2, 3], {"count"}),
    ],
)
def test_entries_that_are_gone_are_found(entries: list[Entry], gone: list[int], kinds: set[str]) -> None:
    past_the_models("DELETE FROM accounts_entry WHERE id = ANY(%s)", [entries[index].pk for index in gone])
    assert {gap.kind for gap in chain_breaks(Account)} == kinds


@pytest.mark.parametrize(
    ("change", "index", "kinds"),
    [
        ("amount = amount + 1", 0, {"opening"}),
        ("amount = amount + 1", 1, {"entry"}),
        ("amount = amount + 1, balance_after = balance_after + 1", 3, {"balance"}),
        ("version_after = 1", 2, {"version"}),
        ("version_after = 99", 3, {"version"}),
    ],
)
def test_an_entry_that_was_changed_is_found(entries: list[Entry], change: str, index: int, kinds: set[str]) -> None:
    past_the_models(f"UPDATE accounts_entry SET {change} WHERE id = %s", entries[index].pk)
    assert {gap.kind for gap in chain_breaks(Account)} == kinds


def test_books_that_were_moved_as_a_whole_do_not_fit_the_opening_balance(entries: list[Entry]) -> None:
    past_the_models("UPDATE accounts_entry SET balance_after = balance_after + 1")
    Account.objects.update(balance=F("balance") + 1)
    (gap,) = chain_breaks(Account)
    assert str(gap) == (
        f"account {gap.account}: first entry {entries[0].pk} starts from 101.00, expected the opening balance 100.00"
    )


def test_an_account_without_entries_has_the_balance_that_it_was_opened_with(account: Account) -> None:
    Account.objects.update(balance=70)
    (gap,) = chain_breaks(Account)
    assert gap.as_dict() == {
        "kind": "balance",
        "account": account.pk,
        "entry": None,
        "expected": "100.00",
        "stored": "70.00",
    }
    assert str(gap) == f"account {account.pk}: without entries the balance is 70.00, expected 100.00"


def test_it_says_how_many_entries_are_gone(entries: list[Entry]) -> None:
    past_the_models("DELETE FROM accounts_entry WHERE id >= %s", entries[2].pk)
    (gap,) = chain_breaks(Account)
    assert str(gap) == f"account {gap.account}: the number of entries is 2, expected 4"


def test_an_account_whose_opening_is_not_known_is_not_accused(entries: list[Entry]) -> None:
    Account.objects.update(opening_balance=None, entry_count=0)
    assert not list(chain_breaks(Account))
    past_the_models("UPDATE accounts_entry SET amount = amount + 1 WHERE id = %s", entries[1].pk)
    assert [gap.kind for gap in chain_breaks(Account)] == ["entry"]


def test_books_that_are_known_to_be_right_can_be_taken_over(entries: list[Entry]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "measure" / "account.md").read_text()
    (take_over,) = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    Account.objects.update(opening_balance=None, entry_count=0)
    query(take_over)
    account = Account.objects.get()
    assert (str(account.opening_balance), account.entry_count) == ("100.00", 4)
    Account.deposit(account.pk, 1)
    assert not list(chain_breaks(Account))


def bulk_created(account: Account) -> list[Account]:
    return Account.objects.bulk_create([Account(user=account.user, balance=7), Account(user=account.user)])


def copied(account: Account) -> list[Account]:
    copy = Account.objects.get(pk=account.pk)
    copy.pk = None
    copy.save()
    return [copy]


def bulk_copied(account: Account) -> list[Account]:
    copy = Account.objects.get(pk=account.pk)
    copy.pk = None
    return Account.objects.bulk_create([copy])


def written_in_sql(account: Account) -> list[Account]:
    columns = "user_id, balance, overdraft_limit, updated_at"
    insert = f"INSERT INTO accounts_account ({columns}) VALUES (%s, 7, 0, now()) RETURNING id"
    return [Account.objects.get(pk=query(insert, account.user_id))]


def loaded_alone(account: Account) -> list[Account]:
    """As a fixture written by hand: without the columns that only the account itself fills."""
    (row,) = json.loads(serializers.serialize("json", [Account.objects.get(pk=account.pk)]))
    row["pk"] += 1000
    for name in ("opening_balance", "entry_count"):
        del row["fields"][name]
    for loaded in serializers.deserialize("json", json.dumps([row])):
        loaded.save()
    return [Account.objects.get(pk=row["pk"])]


@pytest.mark.parametrize("make", [bulk_created, copied, bulk_copied, written_in_sql, loaded_alone])
def test_no_account_is_accused_however_it_was_made(account: Account, make: Callable[[Account], list[Account]]) -> None:
    Account.deposit(account.pk, 50)
    accounts = make(account)
    assert not list(chain_breaks(Account))
    for row in accounts:
        Account.deposit(row.pk, 5)
        Account.objects.get(pk=row.pk).try_deposit(5)
    assert not list(chain_breaks(Account))


def test_a_dump_brings_its_books_along(entries: list[Entry]) -> None:
    dump = serializers.serialize("json", [Account.objects.get(), *entries])
    past_the_models("DELETE FROM accounts_entry")
    Account.objects.all()._raw_delete("default")
    for row in serializers.deserialize("json", dump):
        row.save()
    assert not list(chain_breaks(Account))
    past_the_models("DELETE FROM accounts_entry WHERE id >= %s", entries[2].pk)
    assert [gap.kind for gap in chain_breaks(Account)] == ["count"]


# What the database refuses to every writer: entries are for ever, and balances keep their limits


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
    with pytest.raises(IntegrityError, match="rows of accounts_entry are append-only"), transaction.atomic():
        query(sql)
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
