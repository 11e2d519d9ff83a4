"""Entries as items of a store, and the keys of accounts and entries among its items.

::

    ledger#account#ada
    ledger#entry#ada#key#payment-17      an entry with an idempotency key: there is one, or none
    ledger#entry#ada#id#5f0c...          an entry without one
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Self

from accounts.amounts import QUANTUM
from django_lockstep.stores import DynamoStore
from django_lockstep.stores.terms import valid_key

LEDGER = "ledger#"
"""What the keys of accounts and entries begin with; a store's other items have other keys."""

_ACCOUNT, _ENTRY = f"{LEDGER}account#", f"{LEDGER}entry#"
# Without "#", so that no account's name and idempotency key together look like those of another account.
_NAME = re.compile("[^#]{1,100}")


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


def account_key(pk: str) -> str:
    """Return the key of the account's item. Raises ``ValueError`` for what cannot be the name of an account."""
    return _ACCOUNT + _valid_name(pk)


def keyed_entry_key(pk: str, idempotency_key: str) -> str:
    """Return the key of the entry that was booked with this idempotency key, if any was.

    Raises ``ValueError`` where the two names together are too long for the store.
    """
    return valid_key(f"{_ENTRY}{_valid_name(pk)}#key#{idempotency_key}")


def new_entry_key(pk: str, number: str) -> str:
    """Return the key of an entry without an idempotency key, by a number that no other entry of the account has."""
    return f"{_ENTRY}{_valid_name(pk)}#id#{number}"


def is_account(key: str) -> bool:
    """Whether an account's item has this key, and not an entry's."""
    return key.startswith(_ACCOUNT)


def account_of(key: str) -> str:
    """Return the name of the account that the item is, or that the entry belongs to."""
    return key.split("#", 3)[2]


def _valid_name(pk: str) -> str:
    if not isinstance(pk, str) or not _NAME.fullmatch(pk):
        raise ValueError(f"an account's name must be a string of 1 to 100 characters without '#', not {pk!r}")
    return pk
