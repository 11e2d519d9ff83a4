"""Arguments that are refused before any SQL. Both engines read them, so both are asked in each test, not in two."""

from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.batches import BalanceChange
from accounts.engine import ENGINES, use_engine
from accounts.errors import InvalidAmount
from accounts.models import Account
from accounts.strategies import STRATEGIES

pytestmark = pytest.mark.django_db

AMOUNTS: list[Any] = [0, -5, Decimal("NaN"), Decimal("Infinity"), "1.005", 1.5, True, 10**17, None]
KEYS: list[Any] = ["", "x" * 256, "a\0b", 5, b"key"]


def accepted(
    call: Callable[[Any], object], values: Iterable[Any], error: type[Exception], *, match: str = ""
) -> list[Any]:
    """Return the values that an engine does not refuse with this error, each with the engine; no SQL may be sent."""
    values_taken = []
    for engine, value in product(ENGINES, values):
        with CaptureQueriesContext(connection) as captured, use_engine(engine):
            try:
                call(value)
            except error as refusal:
                if match in str(refusal) and not captured.captured_queries:
                    continue
        values_taken.append((engine, value))
    return values_taken


@pytest.mark.parametrize(
    "change",
    [
        lambda amount: Account.deposit(1, amount),
        lambda amount: Account.withdraw(1, amount),
        lambda amount: Account.transfer(1, 2, amount),
        lambda amount: Account(pk=1).try_deposit(amount),
        lambda amount: Account(pk=1).try_withdraw(amount),
    ],
    ids=["deposit", "withdraw", "transfer", "try_deposit", "try_withdraw"],
)
def test_amounts_of_the_accounts_methods(change: Any) -> None:
    assert accepted(change, AMOUNTS, InvalidAmount) == []


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_amounts_of_the_strategies(strategy: Any) -> None:
    for change in (strategy.deposit, strategy.withdraw, lambda pk, amount: strategy.transfer(pk, 2, amount)):
        assert accepted(lambda amount: change(1, amount), AMOUNTS, InvalidAmount) == []  # noqa: B023 - called here


def test_idempotency_keys() -> None:
    for change in (Account.deposit, Account.withdraw, lambda pk, amount, **key: Account.transfer(pk, 2, amount, **key)):
        call = lambda key: change(1, 1, idempotency_key=key)  # noqa: B023, E731 - called here
        assert accepted(call, KEYS, ValueError, match="idempotency_key must be a string") == []


@pytest.mark.parametrize("strategy", [Account, *STRATEGIES.values()], ids=["account", *STRATEGIES])
def test_one_account_as_source_and_target(strategy: Any) -> None:
    assert accepted(lambda pk: strategy.transfer(pk, 1, 5), [1, "1"], ValueError, match="two accounts") == []


@pytest.mark.parametrize("strategy", [Account, *STRATEGIES.values()], ids=["account", *STRATEGIES])
def test_an_account_in_place_of_its_key(strategy: Any) -> None:
    sentence = "Expected the primary key of an account, not the instance accounts.Account 7"
    for change in (strategy.deposit, strategy.withdraw, lambda pk, amount: strategy.transfer(1, pk, amount)):
        call = lambda account: change(account, 5)  # noqa: B023, E731 - called here
        assert accepted(call, [Account(pk=7)], TypeError, match=sentence) == []


def test_an_empty_list_of_changes_sends_no_statement() -> None:
    for engine in ENGINES:
        with CaptureQueriesContext(connection) as captured, use_engine(engine):
            assert Account.apply_many([]) == []
        assert not captured.captured_queries


@pytest.mark.parametrize(
    ("wrong", "error", "rule"),
    [
        ((1, 0), InvalidAmount, "must not be zero"),
        ((1, 0.5), InvalidAmount, "decimal string"),
        ((1, "-0.001"), InvalidAmount, "2 decimal places"),
        ((1, -(10**17)), InvalidAmount, "digits before the point"),
        ((1, Decimal("-Infinity")), InvalidAmount, "must be finite"),
        ((1,), ValueError, "Change 1 must be a BalanceChange or a pair"),
        ("12", ValueError, "Change 1 must be a BalanceChange or a pair"),
        (BalanceChange(1, 1, idempotency_key=""), ValueError, "idempotency_key"),
        (BalanceChange(1, 1, idempotency_key="k" * 256), ValueError, "idempotency_key"),
        (BalanceChange(1, 1, transfer="no"), ValueError, "transfer"),  # type: ignore[arg-type]
    ],
)
def test_changes_of_a_list(wrong: Any, error: type[Exception], rule: str) -> None:
    assert accepted(lambda change: Account.apply_many([(1, 1), change]), [wrong], error, match=rule) == []
    if error is InvalidAmount:
        with pytest.raises(error, match="Change 1, of account 1: "):
            Account.apply_many([(1, 1), wrong])
