"""One key, one change: the second call gets the first one's result, whenever it comes."""

from decimal import Decimal
from typing import Any

import pytest

from accounts.errors import IdempotencyKeyReused, InsufficientFunds
from accounts.models import Account, Entry
from tests.support.factories import AccountFactory


@pytest.mark.parametrize("change", [Account.deposit, Account.withdraw])
def test_the_second_call_gets_the_first_result(account: Account, change: Any) -> None:
    first = change(account.pk, 40, idempotency_key="k")
    Account.deposit(account.pk, 7)
    again = change(account.pk, "40.00", idempotency_key="k")
    assert (again.balance, again.version) == (first.balance, first.version)
    assert Entry.objects.count() == 2


def test_a_repeated_withdrawal_is_not_applied_again_even_if_not_covered(account: Account) -> None:
    Account.withdraw(account.pk, 100, idempotency_key="k")
    assert Account.withdraw(account.pk, 100, idempotency_key="k").balance == 0
    with pytest.raises(InsufficientFunds):
        Account.withdraw(account.pk, 100, idempotency_key="other")


def test_another_amount_is_refused(account: Account) -> None:
    Account.deposit(account.pk, 40, idempotency_key="k")
    with pytest.raises(IdempotencyKeyReused, match="'k'") as caught:
        Account.deposit(account.pk, 41, idempotency_key="k")
    assert (caught.value.idempotency_key, caught.value.recorded) == ("k", 40)
    assert Account.objects.get().balance == 140


def test_another_operation_is_refused(account: Account) -> None:
    Account.deposit(account.pk, 40, idempotency_key="k")
    with pytest.raises(IdempotencyKeyReused):
        Account.withdraw(account.pk, 40, idempotency_key="k")
    with pytest.raises(IdempotencyKeyReused):
        Account.objects.get().try_withdraw(40, idempotency_key="k")


def test_a_refused_change_leaves_its_key_free(account: Account) -> None:
    with pytest.raises(InsufficientFunds):
        Account.withdraw(account.pk, 500, idempotency_key="k")
    assert Account.withdraw(account.pk, 5, idempotency_key="k").balance == 95


def test_a_transfer_is_repeated_as_a_whole(account: Account) -> None:
    target = AccountFactory.create()
    first = Account.transfer(account.pk, target.pk, 40, idempotency_key="k")
    Account.deposit(target.pk, 1)
    again = Account.transfer(account.pk, target.pk, 40, idempotency_key="k")
    assert [(row.balance, row.version) for row in again] == [(row.balance, row.version) for row in first]
    assert Entry.objects.count() == 3


def test_a_transfer_to_another_account_is_another_operation(account: Account) -> None:
    target, stranger = AccountFactory.create(), AccountFactory.create()
    Account.transfer(account.pk, target.pk, 40, idempotency_key="k")
    with pytest.raises(IdempotencyKeyReused):
        Account.transfer(account.pk, stranger.pk, 40, idempotency_key="k")
    with pytest.raises(IdempotencyKeyReused):
        Account.withdraw(account.pk, 40, idempotency_key="k")
    Account.withdraw(account.pk, 4, idempotency_key="w")
    with pytest.raises(IdempotencyKeyReused):
        Account.transfer(account.pk, target.pk, 4, idempotency_key="w")


def test_the_key_of_a_transfer_is_the_sources_alone(account: Account) -> None:
    target = AccountFactory.create()
    Account.deposit(target.pk, 1, idempotency_key="k")
    Account.transfer(account.pk, target.pk, 40, idempotency_key="k")
    assert Account.objects.get(pk=target.pk).balance == 41


def test_an_optimistic_repetition_gets_the_first_result_too(account: Account) -> None:
    twin = Account.objects.get(pk=account.pk)
    assert account.try_deposit(40, idempotency_key="k")
    Account.deposit(account.pk, 7)
    assert twin.try_deposit(40, idempotency_key="k")
    assert (twin.balance, twin.version) == (account.balance, account.version)
    assert (twin.balance, twin.version) == (Decimal(140), 2)
    assert Entry.objects.count() == 2


def test_a_repetition_does_not_hide_what_else_was_changed(account: Account) -> None:
    stale = Account.objects.get(pk=account.pk)
    assert Account.objects.get(pk=account.pk).update_if_unchanged(overdraft_limit=500)
    Account.deposit(account.pk, 40, idempotency_key="k")
    assert stale.try_deposit(40, idempotency_key="k")
    stale.save()
    account.refresh_from_db()
    assert (account.balance, account.overdraft_limit) == (140, 500)
