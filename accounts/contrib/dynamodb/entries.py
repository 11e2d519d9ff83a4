"""Entries as items of a store."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Self

from accounts.amounts import QUANTUM
from django_lockstep.stores import DynamoStore

__all__ = ["DynamoEntry", "money"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoEntry:
    """One change of one account; its item is written once, and never changed."""

    key: str
    """The item's key, with the account's name and the idempotency key or a random number."""
    amount: Decimal
    """Negative for a withdrawal."""
    balance_after: Decimal
    version_after: int
    """The account's version with this entry."""
    transfer: str | None
    """The same for both entries of a transfer."""
    previous: str | None
    """The key of the account's entry before this one, so that all of them are found without a search."""
    created_at: str
    """When it was booked, by the clock of the machine that did it: ISO 8601, in UTC."""

    @classmethod
    def read(cls, key: str, *, store: str) -> Self | None:
        """Return the entry with this key; None if there is none."""
        item = DynamoStore.named(store).read(key)
        if item is None:
            return None
        attributes = item.attributes
        numbers = {"amount": money(attributes["amount"]), "balance_after": money(attributes["balance_after"])}
        return cls(key=key, **{**attributes, **numbers, "version_after": int(attributes["version_after"])})

    def attributes(self) -> dict[str, Any]:
        """Return what its item has besides the key."""
        attributes = asdict(self)
        del attributes["key"]
        return attributes


def money(number: Decimal) -> Decimal:
    """Return the number with the places of money: stores drop the zeros at the end."""
    return number.quantize(QUANTUM)
