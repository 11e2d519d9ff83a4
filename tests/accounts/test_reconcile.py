"""``reconcile`` walks every chain in the database and prints each place where it does not fit."""

import io
import json
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import Account, Entry
from accounts.reconciliation import chain_breaks
from tests.support.factories import AccountFactory

pytestmark = pytest.mark.django_db


def run(**options: Any) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("reconcile", stdout=out, stderr=err, no_color=True, **options)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def test_right_books_are_right() -> None:
    for _ in range(3):
        account = AccountFactory.create(balance=100)
        Account.deposit(account.pk, 50)
        Account.withdraw(account.pk, 120)
    AccountFactory.create(balance=5)
    assert run() == (0, "", "Every balance of accounts.Account is what its entries say.\n")


def test_a_balance_that_nobody_booked_is_printed(account: Account) -> None:
    Account.deposit(account.pk, 50)
    Account.objects.update(balance=151)
    code, out, err = run()
    entry = Entry.objects.get()
    assert (code, err) == (1, "1 break found.\n")
    assert out == f"account {account.pk}: after its last entry {entry.pk} the balance is 151.00, expected 150.00\n"


def test_an_entry_that_does_not_follow_is_printed(account: Account) -> None:
    Account.deposit(account.pk, 50)
    forged = Entry.objects.create(account=account, amount=Decimal(-30), balance_after=Decimal(70), version_after=3)
    Account.objects.update(balance=70)
    code, out, _ = run(format="json")
    assert code == 1
    assert [json.loads(line) for line in out.splitlines()] == [
        {"kind": "entry", "account": account.pk, "entry": forged.pk, "expected": "120.00", "found": "70.00"}
    ]


def test_every_break_of_every_account_is_found_in_one_statement() -> None:
    for _ in range(5):
        account = AccountFactory.create(balance=100)
        Account.deposit(account.pk, 1)
        Entry.objects.create(account=account, amount=Decimal(1), balance_after=Decimal(0), version_after=3)
    with CaptureQueriesContext(connection) as captured:
        breaks = list(chain_breaks(Account))
    assert [found.kind for found in breaks] == ["entry", "balance"] * 5
    assert len(captured) == 1


@pytest.mark.parametrize("label", ["accounts.Nothing", "nonsense", "auth.User"])
def test_a_model_that_is_no_account_is_wrong_usage(label: str) -> None:
    with pytest.raises(CommandError) as caught:
        run(model=label)
    assert caught.value.returncode == 2
