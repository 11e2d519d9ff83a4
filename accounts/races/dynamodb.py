"""The accounts of `accounts.contrib.dynamodb` on which stories run."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from accounts.contrib.dynamodb.accounts import DynamoAccount
from accounts.contrib.dynamodb.entries import DynamoEntry, account_key, keyed_entry_key
from accounts.contrib.dynamodb.strategies import DYNAMO_STRATEGIES, DynamoStrategy
from accounts.races.fixture import new_name
from accounts.races.stories import ChangeKind, Story
from django_lockstep.lab.simulator.database import process_environment
from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.worker_process import WorkerConnection
from django_lockstep.stores import StoreError
from django_lockstep.stores.dynamodb.items import item_key
from django_lockstep.stores.dynamodb.store import DynamoStore

__all__ = ["StoreConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Which strategies run, and where. Raises ``ValueError`` for a store that is unknown or not on DynamoDB."""

    store: str
    """The store's name in ``LOCKSTEP_STORES``."""
    strategies: tuple[str, ...]
    """The names, in the order of the report."""
    keep: bool = False
    """Whether the accounts are left in the table."""

    def __post_init__(self) -> None:
        try:
            DynamoStore.named(self.store)
        except (ImproperlyConfigured, ValueError) as error:
            raise ValueError(f"--store {self.store}: {error}") from error

    @property
    def bound(self) -> Sequence[DynamoStrategy]:
        """The strategies for this store."""
        return [DYNAMO_STRATEGIES[name](self.store) for name in self.strategies]

    @contextlib.contextmanager
    def fixture(
        self, notes: list[str], *, workers: int
    ) -> Iterator[tuple[StoreFixture, WorkerConnection, dict[str, Any]]]:
        """Provide accounts, and remove them at the end; workers of any number share the server.

        Raises `SimulationError` where the store cannot be used.
        """
        fixture = StoreFixture(store=self.store, run=new_name())
        # The worker processes connect to no database.
        connection = WorkerConnection(alias=None, database="", session=fixture.run)
        try:
            address = DynamoStore.named(self.store).client.meta.endpoint_url
            try:
                yield fixture, connection, {"database": f"DynamoDB at {address}", **process_environment()}
            finally:
                if self.keep:
                    notes.append(f"Kept: the accounts whose names begin with {fixture.run}.")
                else:
                    fixture.purge()
        except (ImproperlyConfigured, StoreError) as error:
            raise SimulationError(str(error)) from error


@dataclass(slots=True, kw_only=True)
class StoreFixture:
    """The accounts that a simulation opens in a store."""

    store: str
    run: str
    """What the names of its accounts begin with."""
    stories: dict[str, Story] = field(default_factory=dict)
    """What happens on each account that was opened."""

    def open_for(self, story: Story) -> str:
        name, limit = f"{self.run}-{uuid.uuid4().hex}", story.overdraft_limit
        DynamoAccount.open(name, balance=story.balance, overdraft_limit=limit, store=self.store)
        self.stories[name] = story
        return name

    def actor(self, strategy: DynamoStrategy, kind: ChangeKind, amount: Decimal) -> Callable[[Any], object]:
        # The chain of entries does not have those that a strategy loses: a key of its own finds each.
        signed = amount if kind == "deposit" else -amount
        return partial(strategy.change, amount=signed, key=f"{kind} {amount}")

    def balance(self, pk: str) -> Decimal:
        return DynamoAccount.get(pk, store=self.store).balance

    def is_kept(self, story: Story, pk: str) -> bool:
        entries = [DynamoEntry.read(key, store=self.store) for key in self._entry_keys(pk)]
        return story.allows(self.balance(pk), [entry.amount for entry in entries if entry is not None])

    def purge(self) -> None:
        store = DynamoStore.named(self.store)
        for pk in self.stories:
            for key in (account_key(pk), *self._entry_keys(pk)):
                store.call("delete_item", Key=item_key(key))

    def _entry_keys(self, pk: str) -> list[str]:
        return [keyed_entry_key(pk, f"{kind} {amount}") for kind, amount in self.stories[pk].changes]
