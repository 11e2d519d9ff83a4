"""The strategies, each overtaken by another writer between its read and its write."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from accounts.contrib.dynamodb import DynamoAccount, account_breaks, chain_breaks
from accounts.contrib.dynamodb.strategies import DYNAMO_STRATEGIES
from accounts.errors import InsufficientFunds

SAFE = [name for name, strategy in DYNAMO_STRATEGIES.items() if strategy.safe]


@pytest.fixture
def overtake(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let the next change be overtaken by a withdrawal of 300."""
    writes = DynamoAccount.writes

    def overtaken(self: DynamoAccount, amount: Decimal, **options: Any) -> Any:
        monkeypatch.setattr(DynamoAccount, "writes", writes)
        DynamoAccount.withdraw(self.pk, 300, idempotency_key="faster")
        return writes(self, amount, **options)

    return lambda: monkeypatch.setattr(DynamoAccount, "writes", overtaken)


@pytest.mark.usefixtures("options")
@pytest.mark.parametrize("name", SAFE)
def test_a_safe_one_sees_what_was_faster(name: str, overtake: Callable[[], None]) -> None:
    account = DynamoAccount.open("ada", balance=100, overdraft_limit=500)
    strategy = DYNAMO_STRATEGIES[name]("dynamodb")
    overtake()
    with pytest.raises(InsufficientFunds):
        strategy.change("ada", Decimal(-400), key="slower")
    strategy.change("ada", Decimal(50), key="another")
    account.refresh()
    assert (account.balance, account.entry_count) == (-150, 2)
    assert list(account_breaks(account)) == []


@pytest.mark.slow
@pytest.mark.usefixtures("options")
def test_the_naive_one_overwrites_it_and_the_books_show_it(overtake: Callable[[], None]) -> None:
    account = DynamoAccount.open("ada", balance=100, overdraft_limit=500)
    overtake()
    DYNAMO_STRATEGIES["naive"]("dynamodb").change("ada", Decimal(-400), key="slower")
    account.refresh()
    assert (account.balance, account.entry_count) == (-300, 1)
    (found,) = chain_breaks()
    assert (found.kind, found.account, found.expected, found.found) == ("count", "ada", 1, 2)
