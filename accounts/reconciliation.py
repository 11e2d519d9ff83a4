"""Whether balances are what their entries say: every chain walked in the database, in one statement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Literal

from django.db import router
from django.db.models import Count, F, Q, QuerySet, Window
from django.db.models.functions import Lag, Lead

from accounts.models import AbstractAccount

__all__ = ["ChainBreak", "chain_breaks"]

Kind = Literal["opening", "entry", "version", "balance", "count"]

_SENTENCES: dict[Kind, str] = {
    "opening": "its first entry {entry} begins at {found}, it was opened with {expected}",
    "entry": "entry {entry} has {found}, expected {expected}",
    "version": "entry {entry} has version {found}, expected {expected}",
    "balance": "after its last entry {entry} the balance is {found}, expected {expected}",
    "count": "the number of entries is {found}, expected {expected}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainBreak:
    """One place where an account's chain of entries does not fit."""

    kind: Kind
    """What does not fit.

    ``opening``: what the first entry begins at is not what the account was opened with; ``entry``: its balance is not
    the one before plus its amount; ``version``: it is not above the entry's before, or above the account's;
    ``balance``: the account's is not its last entry's; ``count``: there are not as many entries as were written.
    """
    account: Any
    """Primary key of the account."""
    entry: Any
    """Primary key of the entry: the one that does not fit, or the account's last one; None if there is none."""
    expected: Decimal | int
    """What the account and the other entries lead to; of a version the nearest that would fit."""
    found: Decimal | int
    """What is there."""

    def __str__(self) -> str:
        sentence = _SENTENCES[self.kind]
        if self.entry is None:
            sentence = sentence.replace("after its last entry {entry}", "without entries")
        return f"account {self.account}: " + sentence.format(**asdict(self))

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, numbers as strings."""
        return {**asdict(self), "expected": str(self.expected), "found": str(self.found)}


def chain_breaks(model: type[AbstractAccount], *, using: str | None = None) -> Iterator[ChainBreak]:
    """Yield every break of every account's chain, by account and entry, none if the books are right.

    One statement, hence one snapshot at every isolation level: concurrent changes are seen whole or not at all. The
    rows stay on the server until they are yielded, however many there are. Where an account's opening balance is not
    known (see `accounts.opening`), neither that nor the number of its entries is compared.
    """
    for row in _suspects(model, using or router.db_for_read(model)).iterator():
        yield from _breaks_at(row)


# The names begin with "chain_", because accounts of a project's own may have any other.
_OF_ENTRY = {f"chain_{name}": F(f"entries__{name}") for name in ("pk", "amount", "balance_after", "version_after")}
_OF_ACCOUNT = ("pk", "balance", "version", "opening_balance", "entry_count")
_FIRST, _LAST = Q(chain_before=None), Q(chain_following=None)
_BOOKED, _KNOWN = Q(chain_pk__isnull=False), Q(opening_balance__isnull=False)
# What concerns the whole account is compared at its last entry; without entries its only row is that.
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
    """Return the entries that do not fit, each with its account; of an account without entries, the account."""
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


def _breaks_at(row: dict[str, Any]) -> Iterator[ChainBreak]:
    entry, opening = row["chain_pk"], row["opening_balance"]
    place = {"account": row["pk"], "entry": entry}
    if entry is not None:
        yield from _entry_breaks(row, place)
    if row["chain_following"] is None:
        last = opening if entry is None else row["chain_balance_after"]
        if last not in (None, row["balance"]):
            yield ChainBreak(kind="balance", expected=last, found=row["balance"], **place)
        if opening is not None and row["entry_count"] != row["chain_length"]:
            yield ChainBreak(kind="count", expected=row["entry_count"], found=row["chain_length"], **place)


def _entry_breaks(row: dict[str, Any], place: dict[str, Any]) -> Iterator[ChainBreak]:
    """Yield where the entry does not follow from the one before, or the first from the account's opening."""
    before, amount, after = row["chain_before"], row["chain_amount"], row["chain_balance_after"]
    version, version_before = row["chain_version_after"], row["chain_version"]
    if before is None:
        if row["opening_balance"] not in (None, after - amount):
            yield ChainBreak(kind="opening", expected=row["opening_balance"], found=after - amount, **place)
    elif after != before + amount:
        yield ChainBreak(kind="entry", expected=before + amount, found=after, **place)
    if version_before is not None and version <= version_before:
        yield ChainBreak(kind="version", expected=version_before + 1, found=version, **place)
    if row["chain_following"] is None and version > row["version"]:
        yield ChainBreak(kind="version", expected=row["version"], found=version, **place)
