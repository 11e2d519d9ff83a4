"""One suite for every strategy: the safe ones keep every update, the unsafe ones are caught losing one."""

import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import ObjectDoesNotExist
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.contention import Contention
from accounts.errors import InsufficientFunds, InvalidAmount
from accounts.models import Account, Entry
from accounts.reconciliation import chain_breaks
from accounts.strategies import STRATEGIES, Strategy
from django_lockstep.locking import retrying
from tests.support.factories import AccountFactory
from tests.support.sessions import Gate, Session, gated, heard, until

pytestmark = pytest.mark.django_db(transaction=True)

FULL = "99999999999999999.00"
"""A balance that takes no more."""
SAFE = {name: strategy for name, strategy in STRATEGIES.items() if strategy.safe}
UNSAFE = {name: strategy for name, strategy in STRATEGIES.items() if not strategy.safe}

every = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
every_safe = pytest.mark.parametrize("strategy", SAFE.values(), ids=SAFE)


def test_the_mistakes_come_first() -> None:
    assert [strategy.name for strategy in UNSAFE.values()] == list(STRATEGIES)[:2] == ["naive", "naive_atomic"]


def balance(account: Account) -> Decimal:
    return Account.objects.get(pk=account.pk).balance


def breaks() -> list[object]:
    """Return where a chain of entries does not fit."""
    return list(chain_breaks(Account))


# Alone, all do the same.


@every
def test_a_change_writes_balance_version_and_entry(account: Account, strategy: Strategy) -> None:
    returned = strategy.deposit(account.pk, "50.5")
    assert (returned.pk, str(returned.balance), returned.version) == (account.pk, "150.50", 2)
    strategy.withdraw(account.pk, 30)
    account.refresh_from_db()
    assert (str(account.balance), account.version) == ("120.50", 3)
    assert [(str(entry.amount), str(entry.balance_after), entry.version_after) for entry in Entry.objects.all()] == [
        ("50.50", "150.50", 2),
        ("-30.00", "120.50", 3),
    ]
    assert not breaks()


@every
def test_a_transfer_moves_money(strategy: Strategy) -> None:
    source, target = AccountFactory.create(balance=100), AccountFactory.create()
    strategy.transfer(source.pk, target.pk, 30)
    strategy.transfer(target.pk, source.pk, 10)
    assert (balance(source), balance(target), Entry.objects.count()) == (80, 20, 4)


@every
def test_the_overdraft_limit_holds(strategy: Strategy) -> None:
    account = AccountFactory.create(balance=100, overdraft_limit=500)
    with pytest.raises(InsufficientFunds) as caught:
        strategy.withdraw(account.pk, "600.01")
    assert (str(caught.value.balance), str(caught.value.amount)) == ("100.00", "600.01")
    strategy.withdraw(account.pk, 600)
    assert (balance(account), Entry.objects.count()) == (-500, 1)


@every_safe
def test_a_transfer_without_cover_changes_nothing(strategy: Strategy) -> None:
    first, second = AccountFactory.create(), AccountFactory.create()
    for source, target in [(first, second), (second, first)]:
        with pytest.raises(InsufficientFunds):
            strategy.transfer(source.pk, target.pk, 30)
    assert (balance(first), balance(second), Entry.objects.count()) == (0, 0, 0)


@every
def test_a_balance_that_would_not_fit_is_refused(strategy: Strategy) -> None:
    account = AccountFactory.create(balance=FULL)
    with pytest.raises(InvalidAmount):
        strategy.deposit(account.pk, 1)
    assert str(balance(account)) == FULL


@every
def test_an_unknown_account_does_not_exist(account: Account, strategy: Strategy) -> None:
    changes: list[Callable[[], object]] = [
        lambda: strategy.deposit(0, 1),
        lambda: strategy.withdraw(0, 1),
        lambda: strategy.transfer(0, account.pk, 1),
    ]
    for change in changes:
        with pytest.raises(ObjectDoesNotExist):
            change()
    assert balance(account) == 100


def test_a_key_in_another_spelling_is_the_same_lock(account: Account) -> None:
    with CaptureQueriesContext(connection) as captured:
        STRATEGIES["advisory"].deposit(account.pk, 1)
        STRATEGIES["advisory"].deposit(f"0{account.pk}", 1)
    locks = [query["sql"] for query in captured if "pg_advisory_xact_lock" in query["sql"]]
    assert (len(locks), len(set(locks))) == (2, 1)


# Two at the same time: one is stopped right before its write, and the other comes in between.


@pytest.fixture
def conflicts() -> Iterator[list[Any]]:
    """The conflicts of all sessions, as they happen."""
    with heard(retrying) as messages:
        yield messages


def race(strategy: Strategy, account: Any, sessions: list[Session], conflicts: list[object]) -> list[object]:
    """Withdraw 30 and stop before the write; deposit 50 as far as that goes; then let go. Return both outcomes."""
    gate = Gate("UPDATE", "WITH")
    first, second = sessions
    withdrawal = first.start(gated, gate, strategy.withdraw, account.pk, 30)
    gate.wait_until_reached()
    deposit = second.start(strategy.deposit, account.pk, 50)
    until(lambda: deposit.done() or second.is_blocked() or bool(conflicts), "the deposit to end, wait or retry")
    gate.open()
    return [withdrawal.exception(), deposit.exception()]


@every
def test_a_write_in_between_is_lost_without_protection_alone(
    account: Account, strategy: Strategy, open_session: Callable[[], Session], conflicts: list[object]
) -> None:
    assert race(strategy, account, [open_session(), open_session()], conflicts) == [None, None]
    assert balance(account) == (120 if strategy.safe else 70)
    assert bool(breaks()) is not strategy.safe


# What a process remembers of conflicts


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    before = random.getstate()
    random.seed(1)
    yield
    random.setstate(before)


def contention_of(*, probe: float, rows: int = 10) -> Contention:
    contention = Contention()
    contention.probe, contention.rows = probe, rows
    return contention


def after(*conflicts: bool, contention: Contention | None = None) -> Contention:
    contention = contention or contention_of(probe=0)
    for conflict in conflicts:
        contention.record("row", conflict=conflict)
    return contention


def test_a_row_is_calm_until_conflicts_are_frequent() -> None:
    assert not after().prefers_lock("row")
    assert not after(True).prefers_lock("row")
    assert after(True, True).prefers_lock("row")
    assert not after(*[*[False] * 7, True] * 5).prefers_lock("row")


def test_a_row_calms_down() -> None:
    contention = after(*[True] * 10)
    assert contention.prefers_lock("row")
    assert not after(*[False] * 6, contention=contention).prefers_lock("row")


def test_now_and_then_a_contended_row_is_tried_all_the_same() -> None:
    contention = after(*[True] * 10, contention=contention_of(probe=0.1))
    tried = sum(not contention.prefers_lock("row") for _ in range(1000))
    assert 50 < tried < 200


def test_only_so_many_rows_are_remembered() -> None:
    contention = contention_of(probe=0, rows=2)
    for row in ("a", "b", "a", "c"):
        for _ in range(3):
            contention.record(row, conflict=True)
    assert [contention.prefers_lock(row) for row in "abc"] == [True, False, True]
