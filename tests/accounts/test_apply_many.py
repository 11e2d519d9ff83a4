"""Many changes at once: one suite for the one statement and for the plain way."""

import pickle
import uuid
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.signals import post_save
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.batches import AppliedChange, BalanceChange
from accounts.errors import AccountError, IdempotencyKeyReused, InsufficientFunds, InvalidAmount
from accounts.models import Account, Entry
from accounts.reconciliation import chain_breaks
from django_lockstep.locking import SerializationFailure, isolated_transaction
from tests.support.factories import AccountFactory
from tests.support.sessions import Session, heard

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("engine")]


def state(account: Account) -> tuple[str, int]:
    account.refresh_from_db()
    return str(account.balance), account.version


def booked() -> list[tuple[str, str, int]]:
    return [(str(entry.amount), str(entry.balance_after), entry.version_after) for entry in Entry.objects.all()]


def test_changes_of_one_account_happen_in_the_order_given(account: Account) -> None:
    answers = Account.apply_many([(account.pk, 5), (account.pk, "-30.5"), BalanceChange(account.pk, Decimal(1))])
    assert state(account) == ("75.50", 4)
    assert booked() == [("5.00", "105.00", 2), ("-30.50", "74.50", 3), ("1.00", "75.50", 4)]
    entries = Entry.objects.values_list("pk", flat=True)
    assert [change.entry for change in answers] == list(entries)
    assert answers[1] == AppliedChange(account.pk, Decimal("-30.50"), Decimal("74.50"), 3, entries[1], replayed=False)


def test_a_thousand_changes_of_many_accounts_keep_every_chain() -> None:
    accounts = AccountFactory.create_batch(7)
    changes = [(accounts[number % 7].pk, number % 5 + 1) for number in range(1000)]
    answers = Account.apply_many(changes)
    assert [(change.account, change.amount) for change in answers] == changes
    assert sum(Account.objects.values_list("balance", flat=True)) == sum(amount for _, amount in changes)
    assert not list(chain_breaks(Account))


def test_it_is_one_statement_for_every_length_also_with_keys(engine: str) -> None:
    pks = [AccountFactory.create().pk for _ in range(3)]
    texts = set()
    for changes in ([(pks[0], 1)], [BalanceChange(pk, 1, idempotency_key="k") for pk in pks]):
        with CaptureQueriesContext(connection) as captured:
            Account.apply_many(changes)
        texts |= {len(captured)}
    assert (texts == {1}) is (engine == "compiled")


# Refused: nothing is written.


@pytest.mark.parametrize("amounts", [[-10, 50, -141], [-101, 50], [50, -151, 1]])
def test_each_balance_on_the_way_keeps_the_limit(amounts: list[int]) -> None:
    other, account = AccountFactory.create(), AccountFactory.create(balance=50, overdraft_limit=50)
    index = next(number for number, amount in enumerate(amounts) if amount < -100)
    with pytest.raises(InsufficientFunds, match=f"Change {index + 1}, of account {account.pk}: ") as caught:
        Account.apply_many([(other.pk, 1), *((account.pk, amount) for amount in amounts)])
    assert (caught.value.index, caught.value.account) == (index + 1, account.pk)
    assert (caught.value.overdraft_limit, caught.value.amount) == (50, -amounts[index])
    assert caught.value.balance == 50 + sum(amounts[:index])
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301 - its own
    assert (state(other), state(account), booked()) == (("0.00", 1), ("50.00", 1), [])


def test_what_the_limit_just_allows_passes() -> None:
    account = AccountFactory.create(balance=50, overdraft_limit=50)
    Account.apply_many([(account.pk, -100), (account.pk, 1), (account.pk, -1)])
    assert state(account) == ("-50.00", 4)


def test_a_balance_that_would_not_fit_is_refused() -> None:
    account = AccountFactory.create(balance="99999999999999999.00")
    with pytest.raises(InvalidAmount, match="Change 1, .* digits before the point"):
        Account.apply_many([(account.pk, -1), (account.pk, 2), (account.pk, -1)])
    assert state(account) == ("99999999999999999.00", 1)


@pytest.mark.parametrize("unknown", [0, -1, 2**63, -(10**30)])
def test_unknown_accounts_are_named(unknown: int) -> None:
    account = AccountFactory.create()
    with pytest.raises(Account.DoesNotExist, match=f"^accounts.Account {unknown} does not exist$"):
        Account.apply_many([(account.pk, 1), (unknown, 1)])
    assert booked() == []


# Idempotency keys and transfers.


def test_a_used_key_is_left_out_and_the_answer_says_so(account: Account) -> None:
    first = Account.apply_many([BalanceChange(account.pk, 10, idempotency_key='a"\\,{')])[0]
    Account.deposit(account.pk, 5)
    again, new = Account.apply_many([BalanceChange(account.pk, 10, idempotency_key='a"\\,{'), (account.pk, 7)])
    assert again == first._replace(replayed=True)
    assert (str(new.balance_after), new.version_after, new.replayed) == ("122.00", 4, False)
    assert not list(chain_breaks(Account))


def test_a_key_that_comes_twice_counts_once() -> None:
    account, other = AccountFactory.create(), AccountFactory.create()
    change = BalanceChange(account.pk, 10, idempotency_key="k")
    answers = Account.apply_many([change, (account.pk, 1), change, change._replace(account=other.pk)])
    assert [answer.replayed for answer in answers] == [False, False, True, False]
    assert answers[2] == answers[0]._replace(replayed=True)
    assert (state(account), state(other)) == (("11.00", 3), ("10.00", 2))


@pytest.mark.parametrize("before", [True, False], ids=["recorded", "in the list"])
@pytest.mark.parametrize("other", [{"amount": 11}, {"transfer": uuid.uuid4()}], ids=["amount", "transfer"])
def test_a_key_of_another_change_is_refused(before: bool, other: dict[str, Any]) -> None:
    account = AccountFactory.create()
    change = BalanceChange(account.pk, 10, idempotency_key="k")
    if before:
        Account.apply_many([change])
    with pytest.raises(IdempotencyKeyReused, match="Change 1, ") as caught:
        Account.apply_many([(account.pk, 1) if before else change, change._replace(**other)])
    assert (caught.value.recorded, caught.value.idempotency_key) == (10, "k")
    assert len(booked()) == before


def test_entries_of_a_transfer_have_it_in_common() -> None:
    first, second = AccountFactory.create(balance=10), AccountFactory.create()
    transfer = uuid.uuid4()
    Account.apply_many(
        [BalanceChange(first.pk, -5, transfer=transfer), BalanceChange(second.pk, 5, transfer=transfer), (first.pk, 1)]
    )
    assert list(Entry.objects.values_list("transfer", flat=True)) == [transfer, transfer, None]


# Beside others.


@pytest.mark.parametrize(("amount", "error", "left"), [(41, None, ("0.00", 4)), (42, InsufficientFunds, ("40.00", 2))])
def test_it_computes_from_what_it_waited_for(other: Session, amount: int, error: Any, left: tuple[str, int]) -> None:
    account = AccountFactory.create(balance=100)
    with transaction.atomic():
        Account.withdraw(account.pk, 60)
        batch = other.start(Account.apply_many, [(account.pk, 1), (account.pk, -amount)])
        other.wait_until_blocked()
    assert isinstance(batch.exception(), error or type(None))
    assert state(account) == left
    assert not list(chain_breaks(Account))


def test_a_key_that_was_used_while_it_waited_is_left_out(account: Account, other: Session) -> None:
    with transaction.atomic():
        Account.deposit(account.pk, 10, idempotency_key="k")
        batch = other.start(Account.apply_many, [BalanceChange(account.pk, 10, idempotency_key="k"), (account.pk, 1)])
        other.wait_until_blocked()
    assert [answer.replayed for answer in batch.result()] == [True, False]
    assert state(account) == ("111.00", 3)


def test_the_callers_transaction_stays_usable_after_a_refusal() -> None:
    account = AccountFactory.create(balance=10)
    Account.apply_many([BalanceChange(account.pk, 1, idempotency_key="k")])
    with transaction.atomic():
        Account.apply_many([BalanceChange(account.pk, 1, idempotency_key="k"), (account.pk, 1)])
        with pytest.raises(AccountError):
            Account.apply_many([(account.pk, 1), (account.pk, -100)])
        Account.apply_many([(account.pk, 3)])
    assert state(account) == ("15.00", 4)


def test_it_is_undone_with_the_callers_transaction() -> None:
    account = AccountFactory.create()
    with transaction.atomic():
        Account.apply_many([(account.pk, 1)])
        transaction.set_rollback(True)
    assert (state(account), booked()) == (("0.00", 1), [])


def test_above_read_committed_a_change_since_the_snapshot_is_a_serialization_failure(other: Session) -> None:
    account = AccountFactory.create()
    with pytest.raises(SerializationFailure), isolated_transaction(isolation_level="repeatable read"):
        Account.objects.count()
        other.run(Account.deposit, account.pk, 1)
        Account.apply_many([(account.pk, 1)])
    assert state(account) == ("1.00", 2)


def test_receivers_of_signals_are_called_for_each_entry() -> None:
    account = AccountFactory.create()
    with heard(post_save, Entry) as messages:
        answers = Account.apply_many([(account.pk, 1), (account.pk, 2)])
    assert [message["instance"].amount for message in messages] == [1, 2]
    assert [answer.entry for answer in answers] == list(Entry.objects.values_list("pk", flat=True))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-30, 30).filter(bool)), max_size=12))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_batches_do_what_the_same_changes_do_one_by_one(changes: list[tuple[int, int]]) -> None:
    batch, single = ([AccountFactory.create(balance=20, overdraft_limit=10) for _ in range(3)] for _ in range(2))
    with transaction.atomic():
        refused = _one_by_one([(single[which].pk, amount) for which, amount in changes])
        transaction.set_rollback(refused is not None)
    try:
        Account.apply_many([(batch[which].pk, amount) for which, amount in changes])
        assert refused is None
    except InsufficientFunds as error:
        assert refused == error.index
    assert [state(account) for account in batch] == [state(account) for account in single]


def _one_by_one(changes: list[tuple[int, int]]) -> int | None:
    """Make the changes; return the index of the first that was refused."""
    for index, (pk, amount) in enumerate(changes):
        try:
            Account.deposit(pk, amount) if amount > 0 else Account.withdraw(pk, -amount)
        except InsufficientFunds:
            return index
    return None
