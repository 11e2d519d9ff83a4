"""Every way to change a balance on DynamoDB, side by side: the common mistake first.

What ``manage.py simulate --store`` races. Each class can be read on its own; what all share is in `DynamoStrategy`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import ClassVar

from accounts.contrib.dynamodb.accounts import DynamoAccount, retried
from django_lockstep.errors import StaleVersionError
from django_lockstep.stores import DynamoStore
from django_lockstep.stores.dynamodb.items import item_key
from django_lockstep.stores.dynamodb.values import encode

__all__ = ["DYNAMO_STRATEGIES", "DynamoStrategy"]


@dataclass(frozen=True, slots=True)
class DynamoStrategy:
    """One way to change a balance, on one store."""

    store: str
    """The store's name; it must be on DynamoDB."""

    name: ClassVar[str]
    """The name in commands and reports."""
    safe: ClassVar[bool] = True
    """Whether it is meant to lose no update."""

    def change(self, pk: str, amount: Decimal, *, key: str) -> None:
        """Add a signed amount, and write the entry with this idempotency key. Raises `InsufficientFunds`."""
        raise NotImplementedError


class NaivePut(DynamoStrategy):
    """Get, compute, put: the last writer overwrites the others."""

    name = "naive"
    safe = False

    def change(self, pk: str, amount: Decimal, *, key: str) -> None:
        store, account = DynamoStore.named(self.store), DynamoAccount.get(pk, store=self.store)
        update, put = account.writes(amount, idempotency_key=key)
        item = {
            **item_key(update.key),
            "version": encode(account.version + 1),
            "record": encode(uuid.uuid4().hex),
            **{name: encode(value) for name, value in {**account.attributes(), **update.changes}.items()},
        }
        # A put without a condition: what another process has written since the read is gone. That is the bug.
        store.client.put_item(TableName=store.table, Item=item)
        store.put_if_absent(put.key, put.attributes)


class Conditional(DynamoStrategy):
    """Write the account only if it is unchanged, otherwise read again; then write the entry."""

    name = "conditional"

    def change(self, pk: str, amount: Decimal, *, key: str) -> None:
        retried(self._attempt, store=self.store)(pk, amount, key)

    def _attempt(self, pk: str, amount: Decimal, key: str) -> None:
        store, account = DynamoStore.named(self.store), DynamoAccount.get(pk, store=self.store)
        update, put = account.writes(amount, idempotency_key=key)
        # The server compares the version in the write itself.
        if store.update_if_unchanged(update.key, update.changes, version=update.version) is None:
            raise StaleVersionError(pk=pk, expected=update.version)
        # No update is lost, but a process that dies here leaves a balance without its entry.
        store.put_if_absent(put.key, put.attributes)


class Transact(DynamoStrategy):
    """Write account and entry in one transaction, each under its condition: what `DynamoAccount` does."""

    name = "transact"

    def change(self, pk: str, amount: Decimal, *, key: str) -> None:
        book = DynamoAccount.deposit if amount > 0 else DynamoAccount.withdraw
        book(pk, abs(amount), idempotency_key=key, store=self.store)


DYNAMO_STRATEGIES: Mapping[str, type[DynamoStrategy]] = MappingProxyType(
    {kind.name: kind for kind in (NaivePut, Conditional, Transact)}
)
"""Every strategy by name, to be called with a store's name."""
