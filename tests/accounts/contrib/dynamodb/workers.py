"""What worker processes do with an account; each gets the store's options, and says what came of it."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings

from accounts.contrib.dynamodb import DynamoAccount
from accounts.errors import InsufficientFunds

OPERATIONS = {"deposit": DynamoAccount.deposit, "withdraw": DynamoAccount.withdraw}


def book(options: dict[str, Any], changes: Sequence[tuple[str, int, str | None]]) -> list[str]:
    """Make the changes, each an operation, an amount and a key; return the balances, or "refused"."""
    stores: dict[str, Any] = {"dynamodb": options}
    settings.LOCKSTEP_STORES = stores
    return [_booked(*change) for change in changes]


def shuttle(options: dict[str, Any], source: str, target: str, times: int) -> None:
    """Transfer 1 so many times."""
    stores: dict[str, Any] = {"dynamodb": options}
    settings.LOCKSTEP_STORES = stores
    for _ in range(times):
        DynamoAccount.transfer(source, target, 1)


def _booked(operation: str, amount: int, key: str | None) -> str:
    try:
        return str(OPERATIONS[operation]("ada", amount, idempotency_key=key).balance)
    except InsufficientFunds:
        return "refused"
