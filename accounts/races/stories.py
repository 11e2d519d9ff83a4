"""Two stories as scenarios: each is two changes of one account at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Literal

from django.apps import apps

from accounts.engine import EngineName
from accounts.errors import InsufficientFunds
from accounts.models import AbstractAccount
from accounts.races.fixture import Fixture
from accounts.strategies import STRATEGIES, Strategy
from django_lockstep.lab.scenario import Scenario
from django_lockstep.lab.simulator.advice import advice_on_story
from django_lockstep.lab.simulator.interrupt import Interrupt
from django_lockstep.lab.simulator.stories import StoryReport, StoryRow, StoryTrial

__all__ = ["STORIES", "Story"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryActor:
    """An actor: one change of the account, by one strategy; picklable."""

    strategy: str
    """The strategy's name."""
    model: str
    """The account's model, by its label."""
    using: str
    """The database."""
    engine: EngineName | None
    """The engine that runs it; None leaves that to the setting."""
    kind: Literal["deposit", "withdraw"]
    """The operation."""
    amount: Decimal
    """Its amount."""

    def __call__(self, pk: object) -> AbstractAccount:
        """Do it. Raises as `Strategy.deposit` and `Strategy.withdraw` do."""
        model = apps.get_model(self.model)
        strategy = STRATEGIES[self.strategy].bound(model=model, using=self.using, engine=self.engine)
        # Looked up here, in the worker: what is pickled for it has names only.
        change: Callable[[Any, Decimal], AbstractAccount] = getattr(strategy, self.kind)
        return change(pk, self.amount)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Two changes at the same time, and their required outcome."""

    name: str
    """The name for ``--scenario``."""
    text: str
    """What happens, in a sentence."""
    promise: str
    """The required outcome, in a sentence."""
    balance: Decimal
    """The opening balance."""
    overdraft_limit: Decimal
    """The overdraft limit."""
    changes: tuple[tuple[Literal["deposit", "withdraw"], Decimal], ...]
    """What the workers do."""
    passing: int
    """How many of them must succeed."""
    failure: Literal["lost", "overdrawn"]
    """The kind of failure if the outcome is another one."""

    def trial(self, strategy: Strategy, *, fixture: Fixture) -> StoryTrial:
        """Return the story's trial with this strategy."""
        return StoryTrial(
            strategy=strategy.name,
            safe=strategy.safe,
            scenario=self.scenario(strategy, fixture=fixture),
            refusals=(InsufficientFunds,),
            failure=self.failure,
        )

    def report(
        self,
        rows: Sequence[StoryRow],
        ran_on: Mapping[str, Any],
        *,
        runs: int,
        planned: tuple[str, ...],
        interrupt: Interrupt,
        notes: Sequence[str],
    ) -> StoryReport:
        """Return the report of all strategies that played the story."""
        return StoryReport(
            environment=ran_on,
            story=self.name,
            text=self.text,
            promise=self.promise,
            runs=runs,
            planned=planned,
            rows=tuple(rows),
            advice=advice_on_story(rows),
            interrupted=interrupt.name,
            notes=tuple(notes),
        )

    def is_kept_by(self, accounts: Any, pk: object) -> bool:
        """Whether the account's balance and its entries are as `allows` says."""
        rows = list(accounts.filter(pk=pk).values_list("balance", "entries__amount"))  # asked after every schedule
        return self.allows(rows[0][0], [amount for _, amount in rows if amount is not None])

    def allows(self, balance: Decimal, booked: Sequence[Decimal]) -> bool:
        """Whether as many changes are booked as may pass, and the balance is what they add up to."""
        return len(booked) == self.passing and balance == self.balance + sum(booked)

    def scenario(self, strategy: Strategy, *, fixture: Fixture) -> Scenario:
        """Return the race; its set-up opens a fresh account of the fixture and returns the key."""
        rows = StoryAccounts(story=self, fixture=fixture)
        facts: dict[str, Any] = {
            "strategy": strategy.name,
            "model": fixture.model._meta.label,
            "using": fixture.using,
            "engine": strategy.engine,
        }
        return Scenario(
            set_up=rows.open,
            actors={f"{kind} {amount}": StoryActor(kind=kind, amount=amount, **facts) for kind, amount in self.changes},
            invariant=rows.is_kept,
            observe=rows.balance,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryAccounts:
    """Opens a story's accounts and reads them afterwards; picklable."""

    story: Story
    """The story."""
    fixture: Fixture
    """Owns the accounts."""

    def open(self) -> Any:
        """Open an account and return its key."""
        (pk,) = self.fixture.open_accounts(1, balance=self.story.balance, overdraft_limit=self.story.overdraft_limit)
        return pk

    def balance(self, pk: object) -> Decimal:
        """Return the account's balance."""
        balance: Decimal = self._rows().values_list("balance", flat=True).get(pk=pk)
        return balance

    def is_kept(self, pk: object) -> bool:
        """Whether the story ended as it has to."""
        return self.story.is_kept_by(self._rows(), pk)

    def _rows(self) -> Any:
        return self.fixture.model._base_manager.using(self.fixture.using)


STORIES: Mapping[str, Story] = MappingProxyType(
    {
        story.name: story
        for story in (
            Story(
                name="lost-update",
                text="The balance is 100. One worker withdraws 30 while another one deposits 50.",
                promise="Both are booked and the balance is 120; 70 or 150 means that one of them was lost.",
                balance=Decimal("100.00"),
                overdraft_limit=Decimal("0.00"),
                changes=(("withdraw", Decimal(30)), ("deposit", Decimal(50))),
                passing=2,
                failure="lost",
            ),
            Story(
                name="overdraft",
                text="The balance is 100, the overdraft limit 500. Two workers withdraw 400 and 300 at the same time.",
                promise="Exactly one withdrawal passes: the balance is -300 or -200, and the other one is refused.",
                balance=Decimal("100.00"),
                overdraft_limit=Decimal("500.00"),
                changes=(("withdraw", Decimal(400)), ("withdraw", Decimal(300))),
                passing=1,
                failure="overdrawn",
            ),
        )
    }
)
"""Every story by its name."""
