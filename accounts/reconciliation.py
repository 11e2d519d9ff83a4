"""Whether balances are what their entries say: every chain walked in the database, in one statement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Literal

from django.db import router
from django.db.models import F, Q, QuerySet, Window
from django.db.models.functions import Lag, Lead

from accounts.models import AbstractAccount

__all__ = ["ChainBreak", "chain_breaks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainBreak:
    """One place where an account's chain of entries does not fit."""

    kind: Literal["entry", "balance"]
    """``entry``: its balance is not the one before plus its amount; ``balance``: the account's is not its last's."""
    account: Any
    """Primary key of the account."""
    entry: Any
    """Primary key of the entry: the one that does not follow, or the account's last one."""
    expected: Decimal
    """The balance that the entries before lead to."""
    found: Decimal
    """The balance that is there."""

    def __str__(self) -> str:
        what = (
            f"entry {self.entry} has" if self.kind == "entry" else f"after its last entry {self.entry} the balance is"
        )
        return f"account {self.account}: {what} {self.found}, expected {self.expected}"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, amounts as strings."""
        return {**asdict(self), "expected": str(self.expected), "found": str(self.found)}


def chain_breaks(model: type[AbstractAccount], *, using: str | None = None) -> Iterator[ChainBreak]:
    """Yield every break of every account's chain, by account and entry, none if the books are right.

    One statement, hence one snapshot at every isolation level: concurrent changes are seen whole or not at all. The
    rows stay on the server until they are yielded, however many there are. Accounts without entries have nothing to
    break.
    """
    for row in _suspects(model, using or router.db_for_read(model)).iterator():
        yield from _breaks_at(row)


def _suspects(model: type[AbstractAccount], using: str) -> QuerySet[Any, Any]:
    def beside(function: type[Lag | Lead], expression: str) -> Window:
        return Window(function(expression), partition_by=F("account_id"), order_by=F("pk").asc())

    entries = model.entry_model()._base_manager.using(using)
    walked = entries.annotate(before=beside(Lag, "balance_after"), following=beside(Lead, "pk"))
    torn = Q(before__isnull=False) & ~Q(balance_after=F("before") + F("amount"))
    left = Q(following__isnull=True) & ~Q(balance_after=F("account__balance"))
    rows: QuerySet[Any, Any] = walked.filter(torn | left).order_by("account_id", "pk")
    return rows.values("pk", "account_id", "amount", "balance_after", "before", "following", "account__balance")


def _breaks_at(row: dict[str, Any]) -> Iterator[ChainBreak]:
    place = {"account": row["account_id"], "entry": row["pk"]}
    after, before, balance = row["balance_after"], row["before"], row["account__balance"]
    if before is not None and after != before + row["amount"]:
        yield ChainBreak(kind="entry", expected=before + row["amount"], found=after, **place)
    if row["following"] is None and after != balance:
        yield ChainBreak(kind="balance", expected=after, found=balance, **place)
