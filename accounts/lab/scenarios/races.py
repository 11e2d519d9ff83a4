"""Ready-made races for the explorer: each a few lines of ordinary Django code, with what is to be expected of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import F

from accounts.abstract import AbstractAccount
from accounts.lab.explorer import Exploration
from accounts.lab.scenario import Scenario
from accounts.lab.scenarios.stories import STORIES, Story
from accounts.models import Account
from accounts.strategies import STRATEGIES, Strategy

__all__ = ["RACES", "Race"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """A scenario with a name, and what exploring it has to show."""

    name: str
    """What the command calls it."""
    text: str
    """What is raced, in a sentence."""
    scenario: Scenario
    """The race itself."""
    holds: bool = True
    """Whether its invariant holds in every interleaving."""
    deadlocks: bool = False
    """Whether some interleaving deadlocks."""

    def as_expected(self, exploration: Exploration) -> bool:
        """Whether the exploration shows what the race is here to show."""
        verdict = "holds" if self.holds else "broken"
        return exploration.verdict == verdict and bool(exploration.deadlocks) == self.deadlocks


def open_account(balance: int, *, overdraft_limit: int = 0, user: Any = None) -> AbstractAccount:
    """Open an account, for a new user unless one is given."""
    owner = user or get_user_model()._base_manager.create(username="race")
    return Account.objects.create(user=owner, balance=Decimal(balance), overdraft_limit=Decimal(overdraft_limit))


def balances(pks: Any) -> list[str]:
    """Return the balances in the order of keys."""
    return [str(balance) for balance in Account.objects.order_by("pk").values_list("balance", flat=True)]


# The two stories, by every strategy


def story_race(story: Story, strategy: Strategy) -> Race:
    """Return the story as this strategy plays it."""

    def set_up() -> Any:
        return open_account(int(story.balance), overdraft_limit=int(story.overdraft_limit)).pk

    def change(kind: str, amount: Decimal) -> Callable[[Any], None]:
        return lambda pk: getattr(strategy, kind)(pk, amount) and None

    return Race(
        name=f"{story.name}:{strategy.name}",
        text=f"{story.text} {strategy.summary}",
        scenario=Scenario(
            set_up=set_up,
            actors=[change(kind, amount) for kind, amount in story.changes],
            invariant=lambda pk: story.is_kept_by(Account.objects, pk),
            observe=balances,
        ),
        holds=strategy.safe,
    )


# Two accounts


def two_accounts() -> list[Any]:
    """Open two accounts of one owner with 100 each."""
    first = open_account(100, overdraft_limit=1000)
    return [first.pk, open_account(100, overdraft_limit=1000, user=first.user).pk]


def total_is_kept(pks: list[Any]) -> bool:
    """Whether no money was made or lost."""
    return sum(Account.objects.filter(pk__in=pks).values_list("balance", flat=True)) == 200


def total_is_covered(pks: list[Any]) -> bool:
    """Whether the owner's accounts together are not below zero."""
    return sum(Account.objects.filter(pk__in=pks).values_list("balance", flat=True)) >= 0


def transfers(strategy: Strategy) -> Scenario:
    """One transfer in each direction between the same two accounts."""
    return Scenario(
        set_up=two_accounts,
        actors=[
            lambda pks: strategy.transfer(pks[0], pks[1], 10),
            lambda pks: strategy.transfer(pks[1], pks[0], 5),
        ],
        invariant=total_is_kept,
        observe=balances,
    )


def unordered_transfer(source: int, target: int) -> Callable[[list[Any]], None]:
    """Return a transfer that updates both rows, the source's first."""

    def transfer(pks: list[Any]) -> None:
        with transaction.atomic():
            Account.objects.filter(pk=pks[source]).update(balance=F("balance") - 10)
            Account.objects.filter(pk=pks[target]).update(balance=F("balance") + 10)

    return transfer


def withdraw_if_covered(index: int, *, lock: bool) -> Callable[[list[Any]], None]:
    """Return a withdrawal of 200 from one account that checks the sum of both, with or without locking both."""

    def withdraw(pks: list[Any]) -> None:
        with transaction.atomic():
            accounts = Account.objects.filter(pk__in=pks).order_by("pk")
            read = accounts.select_for_update(no_key=True) if lock else accounts
            if sum(account.balance for account in read) >= 200:
                Account.objects.filter(pk=pks[index]).update(balance=F("balance") - 200)

    return withdraw


def write_skew(*, lock: bool) -> Scenario:
    """Two withdrawals, each covered by the sum of two accounts, and not both of them."""
    return Scenario(
        set_up=two_accounts,
        actors=[withdraw_if_covered(0, lock=lock), withdraw_if_covered(1, lock=lock)],
        invariant=total_is_covered,
        observe=balances,
    )


# Rows that are made, claimed, referred to


def get_or_create_user(made: Any) -> None:
    """Make the user unless it is there; the name is unique."""
    get_user_model()._base_manager.get_or_create(username="ada")


def get_or_create_account(pk: Any) -> None:
    """Make an account with a limit of 7 unless there is one; nothing makes that unique."""
    user = Account.objects.get(pk=pk).user
    Account.objects.get_or_create(user=user, overdraft_limit=7)


def one_user(made: Any) -> bool:
    """Whether the user is there once."""
    return get_user_model()._base_manager.filter(username="ada").count() == 1


def one_account_with_the_limit(made: Any) -> bool:
    """Whether the account was made once."""
    return Account.objects.filter(overdraft_limit=7).count() == 1


def nobody() -> None:
    """Set up nothing."""


def one_account() -> Any:
    """Open one account with 100."""
    return open_account(100).pk


def claim(*, lock: bool) -> Callable[[list[Any]], None]:
    """Return a worker that takes the first account with a balance of 100 and counts its claim in the limit."""

    def work(pks: list[Any]) -> None:
        with transaction.atomic():
            waiting = Account.objects.filter(balance=100).order_by("pk")
            task = (waiting.select_for_update(skip_locked=True) if lock else waiting).first()
            if task is not None:
                Account.objects.filter(pk=task.pk).update(balance=50, overdraft_limit=F("overdraft_limit") + 1)

    return work


def claimed_once(pks: list[Any]) -> bool:
    """Whether no task was claimed by two workers."""
    return not Account.objects.filter(overdraft_limit__gt=1001).exists()


def idempotent_deposit(pk: Any) -> None:
    """Deposit under a key that the other actor uses, too."""
    Account.deposit(pk, 10, idempotency_key="once")


def deposited_once(pk: Any) -> bool:
    """Whether one of the deposits counted."""
    return Account.objects.get(pk=pk).balance == 110


def _all_races() -> Iterator[Race]:
    for story in STORIES.values():
        for strategy in STRATEGIES.values():
            yield story_race(story, strategy)
    yield Race(
        name="transfers:ordered",
        text="Opposite transfers that lock both accounts in primary-key order.",
        scenario=transfers(STRATEGIES["pessimistic"]),
    )
    yield Race(
        name="transfers:unordered",
        text="Opposite transfers that update the source first: right, but they deadlock.",
        scenario=Scenario(
            set_up=two_accounts,
            actors=[unordered_transfer(0, 1), unordered_transfer(1, 0)],
            invariant=total_is_kept,
            observe=balances,
        ),
        deadlocks=True,
    )
    yield Race(
        name="write-skew:unlocked",
        text="Each withdrawal is covered by the sum that it read; both together are not.",
        scenario=write_skew(lock=False),
        holds=False,
    )
    yield Race(
        name="write-skew:locked",
        text="The same, with every row locked that the decision rests on.",
        scenario=write_skew(lock=True),
    )
    yield Race(
        name="get-or-create:unique",
        text="get_or_create() of a row that a unique constraint keeps single.",
        scenario=Scenario(set_up=nobody, actors=[get_or_create_user] * 2, invariant=one_user),
    )
    yield Race(
        name="get-or-create:not-unique",
        text="get_or_create() of a row that no constraint keeps single.",
        scenario=Scenario(set_up=one_account, actors=[get_or_create_account] * 2, invariant=one_account_with_the_limit),
        holds=False,
    )
    yield Race(
        name="queue:skip-locked",
        text="Two workers claim tasks with select_for_update(skip_locked=True).",
        scenario=Scenario(set_up=two_accounts, actors=[claim(lock=True)] * 2, invariant=claimed_once),
    )
    yield Race(
        name="queue:unlocked",
        text="Two workers claim the first free task that they see.",
        scenario=Scenario(set_up=two_accounts, actors=[claim(lock=False)] * 2, invariant=claimed_once),
        holds=False,
    )
    yield Race(
        name="deposit:idempotent",
        text="Two deposits with one idempotency key: one counts.",
        scenario=Scenario(set_up=one_account, actors=[idempotent_deposit] * 2, invariant=deposited_once),
    )


RACES: Mapping[str, Race] = MappingProxyType({race.name: race for race in _all_races()})
"""Every ready-made race by its name."""
