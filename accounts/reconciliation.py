"""Compares balances with their entries: the database checks every chain of entries in one statement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Literal

from django.db import router
from django.db.models import Count, F, Q, QuerySet, Window
from django.db.models.functions import Lag, Lead

from accounts.models import AbstractAccount

BreakKind = Literal["opening", "entry", "version", "balance", "count"]

_SENTENCES: dict[BreakKind, str] = {
    "opening": "first entry {entry} starts from {stored}, expected the opening balance {expected}",
    "entry": "entry {entry} has {stored}, expected {expected}",
    "version": "entry {entry} has version {stored}, expected {expected}",
    "balance": "after its last entry {entry} the balance is {stored}, expected {expected}",
    "count": "the number of entries is {stored}, expected {expected}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainBreak:
    """One inconsistency in an account's chain of entries."""

    kind: BreakKind
    """What is inconsistent.

    ``opening``: the balance before the first entry is not the account's opening balance; ``entry``: an entry's balance
    is not the previous one plus its amount; ``version``: an entry's version is not above the previous one, or is above
    the account's; ``balance``: the account's balance is not its last entry's; ``count``: there are not as many entries
    as were written.
    """
    account: Any
    """Primary key of the account."""
    entry: Any
    """Primary key of the inconsistent entry, or of the account's last one; None if there is none."""
    expected: Decimal | int
    """The value that follows from the account and its other entries; for a version, the nearest valid one."""
    stored: Decimal | int
    """The stored value."""

    def __str__(self) -> str:
        sentence = _SENTENCES[self.kind]
        if self.entry is None:
            sentence = sentence.replace("after its last entry {entry}", "without entries")
        return f"account {self.account}: " + sentence.format(**asdict(self))

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, numbers as strings."""
        return {**asdict(self), "expected": str(self.expected), "stored": str(self.stored)}


def chain_breaks(model: type[AbstractAccount], *, using: str | None = None) -> Iterator[ChainBreak]:
    """Yield every break of every account's chain, by account and entry; nothing if all balances match their entries.

    One statement, and so one snapshot at every isolation level: a concurrent change is seen whole or not at all. Rows
    are fetched as they are yielded. Where an account's opening balance is unknown (see `accounts.opening`), neither it
    nor the number of entries is compared.
    """
    # iterator(): a server-side cursor, since a damaged table may have very many breaks.
    for row in _suspects(model, using or router.db_for_read(model)).iterator():
        yield from breaks_at(row)


# The names begin with "chain_", so that they do not clash with fields of a project's own account model.
_OF_ENTRY = {f"chain_{name}": F(f"entries__{name}") for name in ("pk", "amount", "balance_after", "version_after")}
_OF_ACCOUNT = ("pk", "balance", "version", "opening_balance", "entry_count")
_FIRST, _LAST = Q(chain_before=None), Q(chain_following=None)
_BOOKED, _KNOWN = Q(chain_pk__isnull=False), Q(opening_balance__isnull=False)
# The account's own values are compared at its last entry; an account without entries is one row of NULLs.
_SUSPECT = (
    (_FIRST & _BOOKED & _KNOWN & ~Q(chain_balance_after=F("opening_balance") + F("chain_amount")))
    | (~_FIRST & ~Q(chain_balance_after=F("chain_before") + F("chain_amount")))
    | (~_FIRST & Q(chain_version_after__lte=F("chain_version")))
    | (_LAST & Q(chain_version_after__gt=F("version")))
    | (_LAST & _BOOKED & ~Q(chain_balance_after=F("balance")))
    | (~_BOOKED & _KNOWN & ~Q(opening_balance=F("balance")))
    | (_LAST & _KNOWN & ~Q(entry_count=F("chain_length")))
)


def _suspects(model: type[AbstractAccount], using: str) -> QuerySet[Any, Any]:
    """Return the inconsistent entries, each with its account; for an account without entries, the account alone."""
    chain: dict[str, Any] = {"partition_by": F("pk"), "order_by": F("entries__pk").asc()}
    walked = {
        "chain_before": Window(Lag("entries__balance_after"), **chain),
        "chain_version": Window(Lag("entries__version_after"), **chain),
        "chain_following": Window(Lead("entries__pk"), **chain),
        "chain_length": Window(Count("entries__pk"), partition_by=F("pk")),
    }
    # Annotations, because a condition on the relation itself would be negated in a subquery.
    accounts = model._base_manager.using(using).annotate(**_OF_ENTRY, **walked)
    rows: QuerySet[Any, Any] = accounts.filter(_SUSPECT).order_by("pk", "chain_pk")
    return rows.values(*_OF_ACCOUNT, *_OF_ENTRY, *walked)


def breaks_at(row: dict[str, Any]) -> Iterator[ChainBreak]:
    """Yield the breaks at one entry: with the one before, and for the last one, or without any, with the account."""
    entry, opening, is_last = row["chain_pk"], row["opening_balance"], row["chain_following"] is None
    amount, after, before = row["chain_amount"], row["chain_balance_after"], row["chain_before"]
    version, version_before = row["chain_version_after"], row["chain_version"]
    # What is expected, None where that is not known, and what is stored.
    pairs: list[tuple[BreakKind, Any, Any]] = []
    if entry is not None:
        pairs.append(("opening", opening, after - amount) if before is None else ("entry", before + amount, after))
        if version_before is not None:
            pairs.append(("version", max(version, version_before + 1), version))
        if is_last:
            pairs.append(("version", min(version, row["version"]), version))
    if is_last:
        pairs.append(("balance", opening if entry is None else after, row["balance"]))
        pairs.append(("count", None if opening is None else row["entry_count"], row["chain_length"]))
    for kind, expected, stored in pairs:
        if expected not in (None, stored):
            yield ChainBreak(kind=kind, account=row["pk"], entry=entry, expected=expected, stored=stored)
