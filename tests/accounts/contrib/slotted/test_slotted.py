"""Slots: split, emptied, resized, and never more taken than there is. The strategies' suite covers the rest."""

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from accounts.contrib.slotted import spreading
from accounts.contrib.slotted.models import Slot, SlotEntry, SlottedAccount
from accounts.contrib.slotted.spreading import split_evenly
from accounts.engine import ENGINES
from accounts.errors import InsufficientFunds, InvalidAmount
from accounts.reconciliation import chain_breaks
from tests.support.factories import UserFactory
from tests.support.sessions import Session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _nothing_is_known_of_accounts_that_are_gone() -> None:
    spreading._sizes.clear()


def opened(*balances: int, overdraft_limit: int = 0) -> SlottedAccount:
    """Open an account whose slots have these balances; the limit is the first one's."""
    account = SlottedAccount.open(UserFactory.create(), size=len(balances))
    for number, balance in enumerate(balances):
        Slot.objects.filter(account=account, number=number).update(
            balance=balance, opening_balance=balance, overdraft_limit=0 if number else overdraft_limit
        )
    return account


def balances(account: SlottedAccount) -> list[int]:
    return [int(slot.balance) for slot in account.slots.order_by("number")]


def numbers(pks: Iterable[Any]) -> set[int]:
    return set(Slot.objects.filter(pk__in=pks).values_list("number", flat=True))


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Say which slot every connection writes."""
    return lambda number: monkeypatch.setattr(spreading, "slot_number", lambda size, using: number)


# Spread.


@given(st.decimals(-1000, 1000, places=2), st.decimals(0, 1000, places=2), st.integers(1, 40))
def test_shares_add_up_and_keep_the_limit_where_the_whole_does(balance: Decimal, limit: Decimal, count: int) -> None:
    ours, limits = split_evenly(balance, count), split_evenly(limit, count)
    assert (sum(ours), sum(limits), len(ours)) == (balance, limit, count)
    assert max(ours) - min(ours) <= Decimal("0.01")
    assert balance < -limit or all(share >= -least for share, least in zip(ours, limits, strict=True))


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "3"])
def test_an_account_has_at_least_one_slot(count: Any) -> None:
    with pytest.raises(ValueError, match="size must be a positive integer"):
        SlottedAccount.open(UserFactory.create(), size=count)
    assert not SlottedAccount.objects.exists()


def test_it_opens_with_everything_spread() -> None:
    account = SlottedAccount.open(UserFactory.create(), size=3, balance="100.00", overdraft_limit="0.50")
    assert account.totals() == (Decimal("100.00"), Decimal("0.50"))
    assert [str(slot.balance) for slot in account.slots.order_by("number")] == ["33.34", "33.33", "33.33"]
    assert {slot.version for slot in account.slots.all()} == {1}


def test_connections_deposit_into_slots_of_their_own_in_one_statement(open_session: Callable[[], Session]) -> None:
    account = opened(0, 0, 0, 0)
    sessions = [open_session() for _ in range(8)]
    wanted = {session.pid % 4 for session in sessions}
    touched = {session.run(SlottedAccount.deposit, account.pk, 1)[0].account for session in sessions}
    assert numbers(touched) == wanted
    with CaptureQueriesContext(connection) as captured:
        SlottedAccount.deposit(account.pk, 1)
        SlottedAccount.deposit(account.pk, 1)
    assert len([entry for entry in captured if entry["sql"].startswith("WITH")]) == 2
    assert account.balance == 10


def test_deposits_do_not_wait_for_each_other(other: Session, own: Callable[[int], None]) -> None:
    account = opened(0, 0)
    own(0)
    with transaction.atomic():
        SlottedAccount.deposit(account.pk, 1)
        own(1)
        other.run(SlottedAccount.deposit, account.pk, 2)
    assert balances(account) == [1, 2]


@pytest.mark.parametrize("engine", ENGINES)
def test_both_engines_do_the_same(engine: str, own: Callable[[int], None], settings: Any) -> None:
    settings.ACCOUNTS_ENGINE = engine
    account = opened(5, 5)
    own(1)
    (slot,) = SlottedAccount.deposit(account.pk, 2)
    (same,) = SlottedAccount.withdraw(account.pk, 3)
    assert numbers([slot.account, same.account]) == {1}
    assert balances(account) == [5, 4]
    assert not list(chain_breaks(Slot))
    assert same.balance_after == account.slots.get(pk=same.account).balance
    assert SlotEntry.objects.get(pk=slot.entry).amount == 2


# Gathered.


def test_what_one_slot_covers_touches_one(own: Callable[[int], None]) -> None:
    account = opened(50, 50, 50)
    own(1)
    assert numbers(each.account for each in SlottedAccount.withdraw(account.pk, 50)) == {1}
    assert balances(account) == [50, 0, 50]


def test_entries_of_several_slots_have_one_transfer(own: Callable[[int], None]) -> None:
    account = opened(50, 50, 50)
    own(2)
    assert [each.balance_after for each in SlottedAccount.withdraw(account.pk, 70)] == [0, 30]
    assert balances(account) == [0, 30, 50]
    assert [int(entry.amount) for entry in SlotEntry.objects.all()] == [-50, -20]
    assert len({entry.transfer for entry in SlotEntry.objects.all()} - {None}) == 1


def test_no_more_slots_are_locked_than_needed(other: Session, own: Callable[[int], None]) -> None:
    account = opened(50, 50, 50)
    own(2)
    with transaction.atomic():
        SlottedAccount.withdraw(account.pk, 70)
        other.run(SlottedAccount.withdraw, account.pk, 50)
    assert balances(account) == [0, 30, 0]


def test_the_limit_is_used_up_to_the_cent() -> None:
    account = opened(10, 0, 20, overdraft_limit=5)
    SlottedAccount.withdraw(account.pk, 35)
    with pytest.raises(InsufficientFunds) as caught:
        SlottedAccount.withdraw(account.pk, "0.01")
    assert (caught.value.balance, caught.value.overdraft_limit, caught.value.amount) == (-5, 5, Decimal("0.01"))
    assert balances(account) == [-5, 0, 0]


def test_two_that_together_would_break_the_limit(other: Session, own: Callable[[int], None]) -> None:
    account = opened(50, 50)
    own(0)
    with transaction.atomic():
        SlottedAccount.withdraw(account.pk, 80)
        late = other.start(SlottedAccount.withdraw, account.pk, 30)
        other.wait_until_blocked()
    assert isinstance(late.exception(), InsufficientFunds)
    assert account.balance == 20


def test_what_was_emptied_while_it_waited_is_looked_for_elsewhere(other: Session, own: Callable[[int], None]) -> None:
    account = opened(50, 50, 50)
    own(0)
    with transaction.atomic():
        Slot.deposit(account.slots.get(number=2).pk, 1)
        Slot.withdraw(account.slots.get(number=0).pk, 40)
        taken = other.start(SlottedAccount.withdraw, account.pk, 90)
        other.wait_until_blocked()
    assert len(taken.result()) == 3
    assert account.balance == 21


def test_slots_that_were_made_while_it_waited_count_too(other: Session) -> None:
    account = opened(60, 40)
    with transaction.atomic():
        SlottedAccount.resize(account.pk, size=4)
        taken = other.start(SlottedAccount.withdraw, account.pk, 100)
        other.wait_until_blocked()
    assert len(taken.result()) == 4
    assert balances(account) == [0, 0, 0, 0]


def test_opposite_transfers_do_not_deadlock(open_session: Callable[[], Session]) -> None:
    one, two = opened(30, 30, 30), opened(30, 30, 30)

    def work(source: Any, target: Any) -> None:
        for _ in range(10):
            SlottedAccount.transfer(source, target, 40)
            SlottedAccount.transfer(target, source, 40)

    pairs = [(one.pk, two.pk), (two.pk, one.pk)]
    for end in [open_session().start(work, *pair) for pair in pairs]:
        end.result()
    assert (one.balance, two.balance) == (90, 90)
    assert not list(chain_breaks(Slot))


# Reshaped.


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_sum_is_the_same_with_any_number_of_slots(size: int) -> None:
    account = opened(-10, 50, 3, overdraft_limit=20)
    SlottedAccount.resize(account.pk, size=size)
    account.refresh_from_db()
    assert (account.size, account.totals()) == (size, (43, 20))
    assert [int(slot.balance) for slot in account.slots.filter(number__gte=size)] == [0] * max(3 - size, 0)
    assert not list(chain_breaks(Slot))


def test_a_limit_is_spread_and_kept() -> None:
    account = opened(50, 0)
    SlottedAccount.resize(account.pk, overdraft_limit="10.01")
    SlottedAccount.withdraw(account.pk, 60)
    with pytest.raises(InsufficientFunds):
        SlottedAccount.resize(account.pk, overdraft_limit="9.99")
    SlottedAccount.resize(account.pk, overdraft_limit=10)
    assert account.totals() == (-10, 10)


def test_money_in_a_slot_that_is_no_longer_needed_counts(own: Callable[[int], None]) -> None:
    account = opened(10, 10)
    own(1)
    SlottedAccount.deposit(account.pk, 1)
    SlottedAccount.resize(account.pk, size=1)
    SlottedAccount.deposit(account.pk, 5)
    assert (balances(account), account.balance) == ([21, 5], 26)
    own(0)
    assert len(SlottedAccount.withdraw(account.pk, 26)) == 2


def test_a_process_notices_new_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    account = opened(0)
    assert spreading.size_of(SlottedAccount, account.pk, using="default") == 1
    monkeypatch.setattr(spreading, "SIZE_CACHE_SECONDS", float("inf"))
    SlottedAccount.resize(account.pk, size=4)
    assert spreading.size_of(SlottedAccount, account.pk, using="default") == 1
    monkeypatch.setattr(spreading, "SIZE_CACHE_SECONDS", 0)
    assert spreading.size_of(SlottedAccount, account.pk, using="default") == 4


@pytest.mark.parametrize("size", [0, -3])
def test_no_account_is_resized_to_nothing(size: int) -> None:
    account = opened(5)
    with pytest.raises(ValueError, match="positive integer"):
        SlottedAccount.resize(account.pk, size=size)
    with pytest.raises(InvalidAmount):
        SlottedAccount.resize(account.pk, overdraft_limit=-1)
    assert balances(account) == [5]


def test_the_database_keeps_entries_and_limits() -> None:
    account = opened(5)
    SlottedAccount.deposit(account.pk, 1)
    with pytest.raises(IntegrityError), transaction.atomic():
        Slot.objects.update(balance=-1)
    with connection.cursor() as cursor, pytest.raises(IntegrityError):
        cursor.execute("DELETE FROM accounts_slotted_slotentry")


# Other databases.


def test_a_database_without_weaker_locks_takes_the_stronger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.features, "has_select_for_no_key_update", False)
    account = opened(30, 30)
    SlottedAccount.withdraw(account.pk, 50)
    SlottedAccount.resize(account.pk, size=1)
    assert balances(account) == [10, 0]


def test_a_database_that_does_not_tell_the_keys_of_new_rows_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.features, "can_return_rows_from_bulk_insert", False)
    account = opened(60, overdraft_limit=3)
    SlottedAccount.resize(account.pk, size=3)
    assert (balances(account), account.totals()) == ([20, 20, 20], (60, 3))
    assert not list(chain_breaks(Slot))


def test_many_at_once_with_the_account_resized_between(open_session: Callable[[], Session]) -> None:
    account = SlottedAccount.open(UserFactory.create(), size=3, balance=60)

    def work() -> int:
        taken = 0
        for _ in range(15):
            SlottedAccount.deposit(account.pk, 3)
            try:
                SlottedAccount.withdraw(account.pk, 25)
                taken += 1
            except InsufficientFunds:
                pass
        return taken

    ends = [open_session().start(work) for _ in range(4)]
    for size in (5, 2, 4):
        SlottedAccount.resize(account.pk, size=size)
    taken = sum(end.result() for end in ends)
    assert account.balance == 60 + 4 * 15 * 3 - 25 * taken
    assert taken == (60 + 4 * 15 * 3) // 25 or account.balance >= 0
    assert not list(chain_breaks(Slot))
