"""Stories on accounts of `accounts.contrib.dynamodb`, from the choice to the report."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, TextIO

from django.core.exceptions import ImproperlyConfigured

from accounts.contrib.dynamodb.accounts import DynamoAccount
from accounts.contrib.dynamodb.entries import DynamoEntry
from accounts.contrib.dynamodb.keys import account_key, keyed_entry_key
from accounts.contrib.dynamodb.strategies import DYNAMO_STRATEGIES, DynamoStrategy
from accounts.errors import InsufficientFunds
from accounts.races.leftovers import new_name
from accounts.races.stories import Story
from django_lockstep.lab.scenario import Scenario
from django_lockstep.lab.simulator.database import process_environment
from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.interrupt import Interrupt
from django_lockstep.lab.simulator.stories import StoryReport, StoryTrial, play
from django_lockstep.lab.simulator.worker_process import WorkerConfig
from django_lockstep.stores import StoreError
from django_lockstep.stores.dynamodb.items import item_key
from django_lockstep.stores.dynamodb.store import DynamoStore

__all__ = ["StoreConfig", "run_story_on_store"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Actor:
    """One change of the account, by one strategy; picklable. Its name is the entry's idempotency key."""

    name: str
    strategy: DynamoStrategy
    amount: Decimal
    """Negative for a withdrawal."""

    def __call__(self, pk: str) -> None:
        self.strategy.change(pk, self.amount, key=self.name)


@dataclass(slots=True, kw_only=True)
class _Accounts:
    """Opens a story's accounts, reads them afterwards, and removes them."""

    story: Story
    store: str
    run: str
    """What the names of its accounts begin with."""
    opened: list[str] = field(default_factory=list)

    @property
    def changes(self) -> dict[str, Decimal]:
        """The signed amounts by the names of the actors."""
        return {f"{kind} {amount}": _signed(kind, amount) for kind, amount in self.story.changes}

    def trial(self, strategy: DynamoStrategy) -> StoryTrial:
        actors = {name: _Actor(name=name, strategy=strategy, amount=amount) for name, amount in self.changes.items()}
        return StoryTrial(
            strategy=strategy.name,
            safe=strategy.safe,
            scenario=Scenario(set_up=self.open, actors=actors, invariant=self.is_kept, observe=self.balance),
            refusals=(InsufficientFunds,),
            failure=self.story.failure,
        )

    def open(self) -> str:
        name, limit = f"{self.run}-{uuid.uuid4().hex}", self.story.overdraft_limit
        DynamoAccount.open(name, balance=self.story.balance, overdraft_limit=limit, store=self.store)
        self.opened.append(name)
        return name

    def is_kept(self, pk: str) -> bool:
        entries = [DynamoEntry.read(key, store=self.store) for key in self._entry_keys(pk)]
        return self.story.allows(self.balance(pk), [entry.amount for entry in entries if entry is not None])

    def balance(self, pk: str) -> Decimal:
        return DynamoAccount.get(pk, store=self.store).balance

    def remove(self) -> None:
        store = DynamoStore.named(self.store)
        for pk in self.opened:
            for key in (account_key(pk), *self._entry_keys(pk)):
                store.call("delete_item", Key=item_key(key))

    def _entry_keys(self, pk: str) -> list[str]:
        return [keyed_entry_key(pk, name) for name in self.changes]


def run_story_on_store(
    config: StoreConfig, *, story: Story, runs: int, interrupt: Interrupt, terminal: TextIO | None
) -> StoryReport:
    """Run a story so many times with each strategy, as `accounts.races.run.run_story` does on a database.

    The worker processes connect to no database. Raises `SimulationError` where the store cannot be used.
    """
    accounts = _Accounts(story=story, store=config.store, run=new_name())
    trials = [accounts.trial(DYNAMO_STRATEGIES[name](config.store)) for name in config.strategies]
    notes: list[str] = []
    with _explain_errors(), _removed(accounts, notes, keep=config.keep):
        ran_on = _environment(config.store)
        worker = WorkerConfig(alias=None, database="", session=accounts.run)
        rows = play(trials, worker, runs=runs, interrupt=interrupt, terminal=terminal)
    return story.report(rows, ran_on, runs=runs, planned=config.strategies, interrupt=interrupt, notes=notes)


@contextlib.contextmanager
def _removed(accounts: _Accounts, notes: list[str], *, keep: bool) -> Iterator[None]:
    try:
        yield
    finally:
        if keep:
            notes.append(f"Kept: the accounts whose names begin with {accounts.run}.")
        else:
            accounts.remove()


@contextlib.contextmanager
def _explain_errors() -> Iterator[None]:
    try:
        yield
    except (ImproperlyConfigured, StoreError) as error:
        raise SimulationError(str(error)) from error


def _signed(kind: Literal["deposit", "withdraw"], amount: Decimal) -> Decimal:
    return amount if kind == "deposit" else -amount


def _environment(store: str) -> dict[str, object]:
    return {"database": f"DynamoDB at {DynamoStore.named(store).client.meta.endpoint_url}", **process_environment()}
