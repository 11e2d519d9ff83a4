"""Two stories: each is two changes of one account at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Literal

__all__ = ["STORIES", "ChangeKind", "Story"]

ChangeKind = Literal["deposit", "withdraw"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Two changes at the same time, and their required outcome."""

    name: str
    """What its races are called, before the strategy."""
    text: str
    """What happens, in a sentence."""
    balance: Decimal
    """The opening balance."""
    overdraft_limit: Decimal
    """The overdraft limit."""
    changes: tuple[tuple[ChangeKind, Decimal], ...]
    """What the workers do."""
    passing: int
    """How many of them must succeed."""

    def is_kept_by(self, accounts: Any, pk: object) -> bool:
        """Whether the account of this query set and its entries are as `allows` says."""
        # In one query, since it is sent after every schedule.
        rows = list(accounts.filter(pk=pk).values_list("balance", "entries__amount"))
        return self.allows(rows[0][0], [amount for _, amount in rows if amount is not None])

    def allows(self, balance: Decimal, booked: Sequence[Decimal]) -> bool:
        """Whether as many changes are booked as may pass, and the balance is what they add up to."""
        return len(booked) == self.passing and balance == self.balance + sum(booked)


STORIES: Mapping[str, Story] = MappingProxyType(
    {
        story.name: story
        for story in (
            Story(
                name="lost-update",
                text="The balance is 100. One worker withdraws 30 while another one deposits 50.",
                balance=Decimal("100.00"),
                overdraft_limit=Decimal("0.00"),
                changes=(("withdraw", Decimal(30)), ("deposit", Decimal(50))),
                passing=2,
            ),
            Story(
                name="overdraft",
                text="The balance is 100, the overdraft limit 500. Two workers withdraw 400 and 300 at the same time.",
                balance=Decimal("100.00"),
                overdraft_limit=Decimal("500.00"),
                changes=(("withdraw", Decimal(400)), ("withdraw", Decimal(300))),
                passing=1,
            ),
        )
    }
)
"""Every story by its name."""
