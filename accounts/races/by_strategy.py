"""The two stories, opposite transfers and mixtures, by every strategy of the accounts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

from django.db import transaction
from django.db.models import F

from accounts.models import Account
from accounts.races.rows import accounts, balances, ends_with, one_account, open_account, pair, two_accounts
from accounts.strategies import STRATEGIES, Strategy
from django_lockstep.lab.races import Race
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import joined

ChangeKind = Literal["deposit", "withdraw"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Two changes at the same time, and their required outcome."""

    name: str
    """What its races are called, before the strategy."""
    text: str
    """What happens, in a sentence."""
    balance: int
    """The opening balance."""
    overdraft_limit: int = 0
    changes: tuple[tuple[ChangeKind, Decimal], ...]
    """What the workers do."""
    passing: int
    """How many of them must succeed."""

    def is_kept_by(self, pk: object) -> bool:
        """Whether as many changes of the account are booked as may pass, and its balance is what they add up to."""
        # In one query, since it is sent after every schedule.
        rows = list(accounts(pk).values_list("balance", "entries__amount"))
        amounts = [amount for _, amount in rows if amount is not None]
        return len(amounts) == self.passing and rows[0][0] == self.balance + sum(amounts)


STORIES = (
    Story(
        name="lost-update",
        text=_("The balance is 100. One worker withdraws 30 while another one deposits 50."),
        balance=100,
        changes=(("withdraw", Decimal(30)), ("deposit", Decimal(50))),
        passing=2,
    ),
    Story(
        name="overdraft",
        text=_("The balance is 100, the overdraft limit 500. Two workers withdraw 400 and 300 at the same time."),
        balance=100,
        overdraft_limit=500,
        changes=(("withdraw", Decimal(400)), ("withdraw", Decimal(300))),
        passing=1,
    ),
)
"""The stories that every strategy races."""


def story_race(story: Story, strategy: Strategy) -> Race:
    """Return the race of the story by this strategy."""

    @functools.cache  # one function for one change, so that its actors may be exchanged
    def change(kind: str, amount: Decimal) -> Callable[[Any], None]:
        return lambda pk: getattr(strategy, kind)(pk, amount) and None

    return pair(
        f"{story.name}:{strategy.name}",
        joined([story.text, _(strategy.summary)], " "),
        actor=[change(kind, amount) for kind, amount in story.changes],
        set_up=lambda: open_account(story.balance, overdraft_limit=story.overdraft_limit).pk,
        invariant=story.is_kept_by,
        observe=balances,
        holds=strategy.safe,
        code=(type(strategy).change,),
        many=lambda number: story_race(larger(story, number), strategy).scenario,
    )


def larger(story: Story, number: int) -> Story:
    """Return the story with more workers, who repeat its largest change."""
    more = number - len(story.changes)
    largest = max(story.changes, key=lambda change: change[1])
    all_pass = story.passing == len(story.changes)
    return replace(story, changes=(*story.changes, *[largest] * more), passing=story.passing + more * all_pass)


def opposite_transfers(name: str, text: str, transfer: Callable[[Any, Any, int], Any], **expected: Any) -> Race:
    """Return one transfer in each direction between the same two accounts."""
    return pair(
        f"transfers:{name}",
        text,
        actor=[lambda pks: transfer(pks[0], pks[1], 10), lambda pks: transfer(pks[1], pks[0], 5)],
        set_up=two_accounts,
        invariant=lambda pks: sum(Account.objects.filter(pk__in=pks).values_list("balance", flat=True)) == 200,
        observe=balances,
        **expected,
    )


def mixed_race(first: Strategy, second: Strategy) -> Race:
    """Return one deposit by either strategy into the same account."""
    text = _(
        "Two deposits into one account, by {first} and by {second}; both are kept.",
        first=first.name,
        second=second.name,
    )
    if first.needs_all_writers:
        text = _(
            "Two deposits into one account, by {first} and by {second}, whose deposit may be overwritten.",
            first=first.name,
            second=second.name,
        )
    return pair(
        f"mixed:{first.name}",
        text,
        actor=[lambda pk: first.deposit(pk, 10) and None, lambda pk: second.deposit(pk, 10) and None],
        set_up=one_account,
        invariant_of=ends_with(10),
        observe=balances,
        holds=not first.needs_all_writers,
        code=(type(first).change, type(second).change),
    )


def unordered_transfer(source: Any, target: Any, amount: int) -> None:
    """Update both rows, the source's first."""
    with transaction.atomic():
        # Each UPDATE locks its row until COMMIT: each transfer then holds what the other one needs next.
        accounts(source).update(balance=F("balance") - amount)
        accounts(target).update(balance=F("balance") + amount)


def races() -> Iterator[Race]:
    for story in STORIES:
        for strategy in STRATEGIES.values():
            yield story_race(story, strategy)
    for name in ("optimistic", "adaptive", "django_concurrency", "conditional_update", "serializable", "advisory"):
        yield mixed_race(STRATEGIES[name], STRATEGIES["pessimistic"])
    for name, strategy in STRATEGIES.items():
        if name == "pessimistic_nowait":
            continue  # the same locks as pessimistic, but retries of both actors give ten times the schedules
        text = joined([_("Opposite transfers."), _(strategy.summary)], " ")
        deadlocks = name == "naive_atomic"
        code = (type(strategy).change,)
        yield opposite_transfers(name, text, strategy.transfer, holds=strategy.safe, deadlocks=deadlocks, code=code)
    yield opposite_transfers(
        "ordered",
        _("Opposite transfers that lock both accounts in primary-key order."),
        STRATEGIES["pessimistic"].transfer,
        waits=frozenset({"SELECT"}),
    )
    yield opposite_transfers(
        "unordered",
        _("Opposite transfers that update the source first: correct, but they deadlock."),
        unordered_transfer,
        deadlocks=True,
    )
    yield pair(
        "deposit:idempotent",
        _("Two deposits with one idempotency key: one counts."),
        actor=lambda pk: Account.deposit(pk, 10, idempotency_key="once") and None,
        set_up=one_account,
        invariant=lambda pk: accounts(pk).get().balance == 110,
        code=(Account.deposit,),
    )
