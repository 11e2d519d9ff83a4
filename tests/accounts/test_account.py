"""The account's own methods: pessimistic class methods, optimistic instance methods, one ledger."""

from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from accounts.errors import IdempotencyKeyReused, InsufficientFunds
from accounts.models import Account, Entry
from accounts.reconciliation import chain_breaks
from django_lockstep.locking import LockNotAvailable, SerializationFailure, isolated_transaction, lock_row
from tests.support.factories import AccountFactory
from tests.support.sessions import Session, query

pytestmark = pytest.mark.usefixtures("engine")


def state(account: Account) -> tuple[str, int]:
    current = Account.objects.get(pk=account.pk)
    return str(current.balance), current.version


def entries(account: Account) -> list[tuple[str, str, int]]:
    return [(str(e.amount), str(e.balance_after), e.version_after) for e in Entry.objects.filter(account=account)]


def lock(pk: object) -> None:
    lock_row(Account, pk)


# Pessimistic


def test_a_deposit_changes_balance_and_version_and_writes_an_entry(account: Account) -> None:
    returned = Account.deposit(account.pk, "50.25")
    assert (returned.balance, returned.version) == (Decimal("150.25"), 2)
    assert state(account) == ("150.25", 2)
    assert entries(account) == [("50.25", "150.25", 2)]


def test_entries_are_dated_by_the_database(account: Account) -> None:
    with transaction.atomic():
        Account.deposit(account.pk, 1)
        assert query("SELECT created_at BETWEEN now() AND clock_timestamp() FROM accounts_entry")


def test_the_overdraft_limit_may_be_used_up_but_not_more(db: None) -> None:
    account = AccountFactory.create(balance=100, overdraft_limit=500)
    assert Account.withdraw(account.pk, 600).balance == -500
    with pytest.raises(InsufficientFunds) as caught:
        Account.withdraw(account.pk, "0.01")
    refused = (caught.value.balance, caught.value.overdraft_limit, caught.value.amount)
    assert refused == (Decimal(-500), Decimal(500), Decimal("0.01"))
    assert state(account) == ("-500.00", 2)
    assert len(entries(account)) == 1


def test_a_transfer_moves_between_two_accounts(db: None) -> None:
    source, target = AccountFactory.create(balance=100), AccountFactory.create()
    returned = Account.transfer(source.pk, target.pk, 40)
    assert [(row.pk, row.balance, row.version) for row in returned] == [(source.pk, 60, 2), (target.pk, 40, 2)]
    assert [entry.transfer for entry in Entry.objects.all()] == [Entry.objects.all()[0].transfer] * 2
    back = Account.transfer(target.pk, source.pk, 40)
    assert [(row.pk, row.balance) for row in back] == [(target.pk, 0), (source.pk, 100)]


def test_a_transfer_locks_both_rows_in_primary_key_order_in_one_statement(db: None) -> None:
    first, second = AccountFactory.create(balance=10), AccountFactory.create(balance=10)
    for source, target in [(first, second), (second, first)]:
        with CaptureQueriesContext(connection) as captured:
            Account.transfer(source.pk, target.pk, 1)
        (locking,) = [entry["sql"] for entry in captured if "FOR NO KEY UPDATE" in entry["sql"]]
        assert 'ORDER BY "accounts_account"."id" ASC' in locking


def test_unknown_accounts_do_not_exist(account: Account) -> None:
    for change in (Account.deposit, Account.withdraw):
        with pytest.raises(Account.DoesNotExist, match=r"^accounts\.Account 0 does not exist$"):
            change(0, 1)
    for pair in [(0, account.pk), (account.pk, 0)]:
        with pytest.raises(Account.DoesNotExist, match=r"^accounts\.Account 0 does not exist$"):
            Account.transfer(*pair, 1)
    assert state(account) == ("100.00", 1)


@pytest.mark.parametrize("options", [{"nowait": True}, {"timeout": 0.02}])
def test_waiting_can_be_bounded(account: Account, other: Session, options: Any) -> None:
    with other.holding(lock, account.pk):
        with pytest.raises(LockNotAvailable) as caught:
            Account.deposit(account.pk, 1, **options)
        assert (caught.value.model, caught.value.sqlstate) == (Account, "55P03")
    assert Account.deposit(account.pk, 1, **options).balance == 101


def test_a_withdrawal_waits_and_decides_on_what_the_first_one_left(account: Account, other: Session) -> None:
    with transaction.atomic():
        Account.withdraw(account.pk, 80)
        waiting = other.start(Account.withdraw, account.pk, 80)
        other.wait_until_blocked()
    assert isinstance(waiting.exception(), InsufficientFunds)
    assert state(account) == ("20.00", 2)


def test_above_read_committed_a_change_since_the_snapshot_is_a_serialization_failure(other: Session) -> None:
    account = AccountFactory.create(balance=100)

    def deposit_late() -> None:
        with isolated_transaction(isolation_level="repeatable read"):
            Account.objects.count()
            other.run(Account.deposit, account.pk, 1)
            Account.deposit(account.pk, 1)

    with pytest.raises(SerializationFailure):
        deposit_late()


# Optimistic


def test_try_deposit_writes_once_and_the_instance_follows(account: Account) -> None:
    assert account.try_deposit(50) is True
    assert (account.balance, account.version) == (150, 2)
    assert account.try_withdraw(30) is True
    assert entries(account) == [("50.00", "150.00", 2), ("-30.00", "120.00", 3)]


def test_the_second_writer_gets_false_and_nothing_is_written(account: Account) -> None:
    rival = Account.objects.get(pk=account.pk)
    Account.deposit(account.pk, 50)
    before = dict(vars(rival))
    with transaction.atomic():
        assert rival.try_withdraw(30) is False
        assert vars(rival) == before
        assert state(account) == ("150.00", 2)
    assert len(entries(account)) == 1
    rival.refresh_from_db()
    assert rival.try_withdraw(30) is True


@pytest.mark.django_db(transaction=True)
def test_money_of_a_rolled_back_change_is_not_there_for_the_next(account: Account) -> None:
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            assert account.try_deposit(50)
            _ = 1 / 0
        with pytest.raises(ValueError, match="refresh_from_db"):
            account.try_deposit(10)
        account.refresh_from_db()
        assert account.try_deposit(10)
    assert Account.objects.get().balance == account.balance == 110
    assert not list(chain_breaks(Account))


def test_insufficient_funds_is_raised_only_for_the_current_balance(account: Account) -> None:
    stale = Account.objects.get(pk=account.pk)
    with pytest.raises(InsufficientFunds):
        account.try_withdraw(150)
    Account.deposit(account.pk, 100)
    assert stale.try_withdraw(150) is False


@pytest.mark.parametrize("change", ["try_deposit", "try_withdraw"])
@pytest.mark.parametrize("amount", [1, 1000])
def test_a_deleted_account_does_not_exist(account: Account, change: str, amount: int) -> None:
    Account.objects.get(pk=account.pk).delete()
    with pytest.raises(Account.DoesNotExist, match=rf"^accounts\.Account {account.pk} was deleted since it was read$"):
        assert getattr(account, change)(amount)
    assert not Account.objects.exists()


def test_a_pessimistic_change_is_noticed_by_an_optimistic_one_that_waits(account: Account, other: Session) -> None:
    with transaction.atomic():
        Account.deposit(account.pk, 1)
        late = other.start(account.try_deposit, 1)
        other.wait_until_blocked()
    assert late.result() is False
    assert state(account) == ("101.00", 2)


# One key, one change: the second call gets the first one's result, whenever it comes


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


def test_another_amount_or_operation_is_refused(account: Account) -> None:
    Account.deposit(account.pk, 40, idempotency_key="k")
    with pytest.raises(IdempotencyKeyReused, match="'k'") as caught:
        Account.deposit(account.pk, 41, idempotency_key="k")
    assert (caught.value.idempotency_key, caught.value.recorded) == ("k", 40)
    with pytest.raises(IdempotencyKeyReused):
        Account.withdraw(account.pk, 40, idempotency_key="k")
    with pytest.raises(IdempotencyKeyReused):
        Account.objects.get().try_withdraw(40, idempotency_key="k")
    assert Account.objects.get().balance == 140


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
