"""Idempotency keys of slotted accounts: an operation happens once, whichever slots it wrote."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from accounts.contrib.slotted import spreading
from accounts.contrib.slotted.models import Slot, SlotEntry, SlotKey, SlottedAccount
from accounts.errors import IdempotencyKeyReused, InsufficientFunds
from accounts.reconciliation import chain_breaks
from tests.support.factories import UserFactory
from tests.support.sessions import Session, query, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("engine")]


@pytest.fixture(autouse=True)
def _nothing_is_known_of_accounts_that_are_gone() -> None:
    spreading._sizes.clear()


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Say which slot every connection writes."""
    return lambda number: monkeypatch.setattr(spreading, "slot_number", lambda size, using: number)


def opened(balance: int = 0) -> SlottedAccount:
    return SlottedAccount.open(UserFactory.create(), size=3, balance=balance)


def told(done: list[Any]) -> list[Any]:
    """Return what an operation came to, without whether it was done before."""
    return [each._replace(replayed=False) for each in done]


@pytest.mark.parametrize("amount", [20, 80], ids=["from one slot", "from several"])
def test_a_deposit_and_a_withdrawal_happen_once_whatever_slot_the_next_call_writes(
    own: Callable[[int], None], amount: int
) -> None:
    account = opened(90)
    for operation, key in ((SlottedAccount.withdraw, "w"), (SlottedAccount.deposit, "d")):
        own(0)
        first = operation(account.pk, amount, idempotency_key=key)
        own(2)
        again = operation(str(account.pk), f"{amount}.00", idempotency_key=key)
        assert told(again) == first
        assert [each.replayed for each in again] == [True] * len(first)
    assert account.balance == 90
    assert SlotEntry.objects.filter(idempotency_key="d").count() == 1
    assert not list(chain_breaks(Slot))


def test_a_transfer_happens_once_and_the_key_is_the_sources() -> None:
    source, target = opened(90), opened(9)
    first = SlottedAccount.transfer(source.pk, target.pk, 80, idempotency_key="k")
    assert told(SlottedAccount.transfer(source.pk, target.pk, 80, idempotency_key="k")) == first
    assert (source.balance, target.balance) == (10, 89)
    SlottedAccount.deposit(target.pk, 1, idempotency_key="k")
    assert target.balance == 90


def test_another_operation_with_the_key_is_refused() -> None:
    source, target, elsewhere = opened(90), opened(), opened()
    SlottedAccount.withdraw(source.pk, 5, idempotency_key="w")
    SlottedAccount.transfer(source.pk, target.pk, 5, idempotency_key="t")
    others: list[Callable[[], object]] = [
        lambda: SlottedAccount.withdraw(source.pk, 6, idempotency_key="w"),
        lambda: SlottedAccount.deposit(source.pk, 5, idempotency_key="w"),
        lambda: SlottedAccount.transfer(source.pk, target.pk, 5, idempotency_key="w"),
        lambda: SlottedAccount.transfer(source.pk, elsewhere.pk, 5, idempotency_key="t"),
        lambda: SlottedAccount.withdraw(source.pk, 5, idempotency_key="t"),
    ]
    for other in others:
        with pytest.raises(IdempotencyKeyReused) as caught:
            other()
        assert caught.value.recorded == -5
    assert source.balance == 80


def test_the_key_of_what_was_refused_can_be_used_again() -> None:
    account = opened()
    with pytest.raises(InsufficientFunds):
        SlottedAccount.withdraw(account.pk, 5, idempotency_key="k")
    with pytest.raises(SlottedAccount.DoesNotExist):
        SlottedAccount.deposit(0, 5, idempotency_key="k")
    assert not SlotKey.objects.exists()
    SlottedAccount.deposit(account.pk, 5, idempotency_key="k")
    assert account.balance == 5


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_who_has_the_same_key_waits_for_the_first_one(other: Session, ends: str) -> None:
    account = opened(90)
    with transaction.atomic():
        first = SlottedAccount.withdraw(account.pk, 80, idempotency_key="k")
        second = other.start(SlottedAccount.withdraw, account.pk, 80, idempotency_key="k")
        other.wait_until_blocked()
        transaction.set_rollback(ends == "rollback")
    done = second.result()
    assert done[0].replayed is (ends == "commit")
    assert ends == "rollback" or told(done) == first
    assert account.balance == 10


def test_a_withdrawal_from_several_slots_releases_the_slot_that_it_tried(
    open_session: Callable[[], Session], own: Callable[[int], None]
) -> None:
    account, spending, waiting = opened(90), open_session(), open_session()
    slots = Slot.objects.filter(account=account)
    own(2)
    spending.begin()
    spending.run(slots.filter(number=2).update, balance=10)
    with transaction.atomic():
        slots.select_for_update().get(number=0)
        ended = waiting.start(SlottedAccount.withdraw, account.pk, 30, idempotency_key="k")
        waiting.wait_until_blocked()
        spending.end()
        until(lambda: waiting_for_me(waiting), "the locking of several slots")
        slots.select_for_update(nowait=True).get(number=2)
    assert sum(each.amount for each in ended.result()) == -30


def waiting_for_me(session: Session) -> bool:
    return bool(query("SELECT pg_backend_pid() = ANY(pg_blocking_pids(%s))", session.pid))
