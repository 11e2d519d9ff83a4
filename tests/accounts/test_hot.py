"""The recipes of docs/measure/hot-accounts.md, as they are printed there, in every interleaving."""

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest
from django.db import connection, models, transaction
from django.db.models import F, Sum
from django.test.utils import isolate_apps

from accounts.models import Account, Entry
from django_lockstep.lab.explorer import Scenario, explore
from django_lockstep.lab.pytest_plugin import RaceFixture
from tests.support.factories import AccountFactory
from tests.support.pages import ROOT

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = ROOT / "docs" / "measure" / "hot-accounts.md"


@pytest.fixture
def load_recipe(transactional_db: None) -> Iterator[Callable[[str], Any]]:
    """Run a recipe as a module of an app, and create its table for the test."""
    created: list[type[models.Model]] = []

    def load(name: str) -> Any:
        (text,) = re.findall(rf"```python\n(# hot/{name}\.py\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
        assert text.count("\n") <= 40
        module = ModuleType(f"tests.testapps.shop.{name}")
        with isolate_apps("tests.testapps.shop"):
            exec(compile(text, str(PAGE), "exec"), vars(module))  # noqa: S102 - the documentation is ours
        (model,) = (
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, models.Model) and value.__module__ == module.__name__
        )
        with connection.schema_editor() as editor:
            editor.create_model(model)
        created.append(model)
        return module

    yield load
    for model in created:
        with connection.schema_editor() as editor:
            editor.delete_model(model)


@pytest.fixture
def inbox(load_recipe: Callable[[str], Any]) -> Any:
    return load_recipe("inbox")


@pytest.fixture
def slots(load_recipe: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    module = load_recipe("slots")
    monkeypatch.setattr(module, "SLOTS", 2)
    return module


# The inbox.


def balance_of(account: Account) -> Decimal:
    return Account.objects.get(pk=account.pk).balance


def test_deposits_are_booked_once_with_their_entries(inbox: Any, account: Account) -> None:
    for amount in (10, "2.50", 30):
        inbox.deposit(account.pk, amount)
    assert balance_of(account) == 100
    assert [inbox.book(size=2), inbox.book(size=2), inbox.book(size=2)] == [2, 1, 0]
    assert balance_of(account) == Decimal("142.50")
    assert [str(entry.amount) for entry in Entry.objects.all()] == ["10.00", "2.50", "30.00"]


def two_deposits(inbox: Any) -> Callable[[], Account]:
    def set_up() -> Account:
        account = AccountFactory.create(balance=100)
        for amount in (10, 20):
            inbox.deposit(account.pk, amount)
        return account

    return set_up


def both_are_booked(account: Account) -> bool:
    return balance_of(account) == 130 and account.entries.count() == 2


def test_two_consumers(race: RaceFixture, inbox: Any) -> None:
    def consume(account: Account) -> None:
        inbox.book(size=1)

    race(consume, consume, set_up=two_deposits(inbox), invariant=both_are_booked, no_deadlock=True)


def test_a_consumer_and_a_deposit_of_each_kind(race: RaceFixture, inbox: Any) -> None:
    def consume(account: Account) -> None:
        inbox.book()

    def direct(account: Account) -> None:
        Account.deposit(account.pk, 1)

    def append(account: Account) -> None:
        inbox.deposit(account.pk, 5)

    def direct_was_kept(account: Account) -> bool:
        return balance_of(account) == 131

    def all_are_booked(account: Account) -> bool:
        inbox.book()
        return balance_of(account) == 135

    race(consume, direct, set_up=two_deposits(inbox), invariant=direct_was_kept, no_deadlock=True)
    race(consume, append, set_up=two_deposits(inbox), invariant=all_are_booked, no_deadlock=True)


def test_without_the_locks_a_deposit_is_booked_twice(inbox: Any) -> None:
    def consume_without_locks(account: Account) -> None:
        with transaction.atomic():
            rows = list(inbox.Deposit.objects.order_by("pk")[:1])
            Account.apply_many((row.account_id, row.amount) for row in rows)
            inbox.Deposit.objects.filter(pk__in=[row.pk for row in rows]).delete()

    def each_is_booked_or_there(account: Account) -> bool:
        return bool(account.entries.count() + inbox.Deposit.objects.count() == 2)

    actors = [consume_without_locks] * 2
    scenario = Scenario(set_up=two_deposits(inbox), actors=actors, invariant=each_is_booked_or_there)
    assert explore(scenario).verdict == "broken"


# The slots.


def balance(slots: Any, fund: str) -> Decimal:
    amount: Decimal = slots.Slot.objects.filter(fund=fund).aggregate(sum=Sum("balance"))["sum"]
    return amount


def opened(slots: Any) -> Callable[[], str]:
    """Return a function that opens a fund with 60 in one slot and 40 in the other."""

    def set_up() -> str:
        for number, amount in enumerate((60, 40)):
            slots.Slot.objects.create(fund="fees", number=number, balance=amount)
        return "fees"

    return set_up


def test_a_withdrawal_takes_from_as_many_slots_as_it_needs(slots: Any) -> None:
    fund = opened(slots)()
    slots.deposit(fund, "2.50")
    assert slots.withdraw(fund, 100)
    assert not slots.withdraw(fund, 3)
    assert balance(slots, fund) == Decimal("2.50")
    with pytest.raises(slots.Slot.DoesNotExist):
        slots.deposit("unknown", 1)


@pytest.mark.parametrize(
    ("amount", "change", "balances"),
    [(80, ("withdraw", 70), {20, 30}), (110, ("deposit", 20), {10, 120})],
    ids=["one of two is covered", "a concurrent deposit covers it"],
)
def test_a_withdrawal_beside_another_change(
    race: RaceFixture, slots: Any, amount: int, change: tuple[str, int], balances: set[int]
) -> None:
    race(
        lambda fund: slots.withdraw(fund, amount),
        lambda fund: getattr(slots, change[0])(fund, change[1]),
        set_up=opened(slots),
        invariant=lambda fund: balance(slots, fund) in balances,
        no_deadlock=True,
    )


def test_a_sum_that_is_read_without_locks_is_spent_twice(slots: Any) -> None:
    def take(number: int) -> Callable[[str], None]:
        def withdraw(fund: str) -> None:
            with transaction.atomic():
                rows = slots.Slot.objects.filter(fund=fund)
                if rows.aggregate(sum=Sum("balance"))["sum"] >= 70:
                    rows.filter(number=number).update(balance=F("balance") - 70)

        return withdraw

    scenario = Scenario(
        set_up=opened(slots), actors=[take(0), take(1)], invariant=lambda fund: balance(slots, fund) >= 0
    )
    assert explore(scenario).verdict == "broken"
