"""One suite for every strategy: the safe ones keep every update, the unsafe ones are caught losing one."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.errors import InsufficientFunds, InvalidAmount
from accounts.locking import retrying
from accounts.models import Account, Entry
from accounts.reconciliation import chain_breaks
from accounts.strategies import STRATEGIES, Strategy
from tests.factories import AccountFactory
from tests.sessions import Gate, Session, gated, until

pytestmark = pytest.mark.django_db(transaction=True)

SAFE = [strategy for strategy in STRATEGIES.values() if strategy.safe]
UNSAFE = [strategy for strategy in STRATEGIES.values() if not strategy.safe]

every = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
every_safe = pytest.mark.parametrize("strategy", SAFE, ids=[strategy.name for strategy in SAFE])
every_unsafe = pytest.mark.parametrize("strategy", UNSAFE, ids=[strategy.name for strategy in UNSAFE])


def balance(account: Account) -> Decimal:
    current: Decimal = Account.objects.get(pk=account.pk).balance
    return current


def test_the_nine_ways_are_there() -> None:
    assert list(STRATEGIES) == [
        "naive",
        "naive_atomic",
        "pessimistic",
        "pessimistic_nowait",
        "optimistic",
        "django_concurrency",
        "conditional_update",
        "serializable",
        "advisory",
    ]
    assert [strategy.name for strategy in UNSAFE] == ["naive", "naive_atomic"]


@every
def test_each_says_what_it_is(strategy: Strategy) -> None:
    assert strategy.summary.endswith(".")
    assert strategy.guarantee.endswith(".")
    assert len({s.summary for s in STRATEGIES.values()}) == len({s.guarantee for s in STRATEGIES.values()}) == 9


# Alone, all do the same.


@every
def test_a_change_writes_balance_version_and_entry(strategy: Strategy) -> None:
    account = AccountFactory.create(balance=100)
    returned = strategy.deposit(account.pk, "50.5")
    assert (returned.pk, str(returned.balance), returned.version) == (account.pk, "150.50", 2)
    strategy.withdraw(account.pk, 30)
    account.refresh_from_db()
    assert (str(account.balance), account.version) == ("120.50", 3)
    assert [(str(e.amount), str(e.balance_after), e.version_after) for e in Entry.objects.all()] == [
        ("50.50", "150.50", 2),
        ("-30.00", "120.50", 3),
    ]
    assert not list(chain_breaks(Account))


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
    one, two = AccountFactory.create(), AccountFactory.create()
    for source, target in [(one, two), (two, one)]:
        with pytest.raises(InsufficientFunds):
            strategy.transfer(source.pk, target.pk, 30)
    assert (balance(one), balance(two), Entry.objects.count()) == (0, 0, 0)


@every
def test_a_balance_that_would_not_fit_is_refused(strategy: Strategy) -> None:
    account = AccountFactory.create(balance="99999999999999999.00")
    with pytest.raises(InvalidAmount):
        strategy.deposit(account.pk, 1)
    assert str(balance(account)) == "99999999999999999.00"


@every
def test_an_unknown_account_does_not_exist(strategy: Strategy) -> None:
    account = AccountFactory.create(balance=100)
    changes: list[Callable[[], object]] = [
        lambda: strategy.deposit(0, 1),
        lambda: strategy.withdraw(0, 1),
        lambda: strategy.transfer(0, account.pk, 1),
    ]
    for change in changes:
        with pytest.raises(Account.DoesNotExist):
            change()
    assert balance(account) == 100


@every
@pytest.mark.parametrize("amount", [0, -1, 1.5, "1.001", True, Decimal("NaN")], ids=str)
def test_bad_amounts_are_refused_before_any_sql(strategy: Strategy, amount: Any) -> None:
    changes: list[Callable[[], object]] = [
        lambda: strategy.deposit(1, amount),
        lambda: strategy.withdraw(1, amount),
        lambda: strategy.transfer(1, 2, amount),
    ]
    with CaptureQueriesContext(connection) as captured:
        for change in changes:
            with pytest.raises(InvalidAmount):
                change()
    assert not captured.captured_queries


@every
def test_a_transfer_needs_two_accounts(strategy: Strategy) -> None:
    with pytest.raises(ValueError, match="two accounts"):
        strategy.transfer("1", 1, 5)


@every
def test_bound_to_a_model_and_a_database(strategy: Strategy) -> None:
    bound = strategy.bound(using="default")
    assert (bound.name, bound.model, bound.alias) == (strategy.name, Account, "default")


# Two at the same time: one is stopped right before its write, and the other comes in between.


@pytest.fixture
def conflicts() -> Iterator[list[object]]:
    """The conflicts that anybody met, as they happen."""
    met: list[object] = []

    def listen(error: Exception, **_: object) -> None:
        met.append(error)

    retrying.connect(listen)
    yield met
    retrying.disconnect(listen)


def race(strategy: Strategy, account: Account, sessions: list[Session], conflicts: list[object]) -> list[object]:
    """Withdraw 30 and stop before the UPDATE; deposit 50 as far as that goes; then let go. Return both outcomes."""
    gate = Gate("UPDATE")
    first, second = sessions
    withdrawal = first.start(gated, gate, strategy.withdraw, account.pk, 30)
    gate.wait_until_reached()
    deposit = second.start(strategy.deposit, account.pk, 50)
    until(lambda: deposit.done() or second.is_blocked() or bool(conflicts), "the deposit to end, wait or retry")
    gate.open()
    return [withdrawal.exception(), deposit.exception()]


@every_safe
def test_a_write_in_between_is_not_lost(
    strategy: Strategy, open_session: Callable[[], Session], conflicts: list[object]
) -> None:
    account = AccountFactory.create(balance=100)
    assert race(strategy, account, [open_session(), open_session()], conflicts) == [None, None]
    assert balance(account) == 120
    assert not list(chain_breaks(Account))


@every_unsafe
def test_without_protection_a_write_in_between_is_lost(
    strategy: Strategy, open_session: Callable[[], Session], conflicts: list[object]
) -> None:
    account = AccountFactory.create(balance=100)
    assert race(strategy, account, [open_session(), open_session()], conflicts) == [None, None]
    assert balance(account) == 70
    assert list(chain_breaks(Account))


# Many at the same time, without any control.


def work(strategy: Strategy, pks: list[int]) -> Decimal:
    """Do some of everything; return what it should have added to both together."""
    here, there = pks
    for _ in range(10):
        strategy.deposit(here, 3)
        strategy.withdraw(here, 1)
        strategy.transfer(here, there, 1)
    return Decimal(20)


@every_safe
def test_many_at_once_lose_nothing(strategy: Strategy, open_session: Callable[[], Session]) -> None:
    one, two = AccountFactory.create(balance=100), AccountFactory.create(balance=100)
    orders = [[one.pk, two.pk], [two.pk, one.pk]] * 2
    ends = [open_session().start(work, strategy, pks) for pks in orders]
    assert sum(end.result() for end in ends) == 80
    assert (balance(one) + balance(two), Entry.objects.count()) == (280, 4 * 40)
    assert not list(chain_breaks(Account))
