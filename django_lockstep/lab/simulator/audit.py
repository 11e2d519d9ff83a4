"""The verdict: what the database holds at the end, compared with its entries and with what the workers acknowledged.

Lost updates are counted from the versions. Every UPDATE of an account adds one to its version, and every entry carries
the version that its writer had seen, plus one. So the n-th UPDATE makes version ``opening + n``, whose balance contains
that update and whatever the balance of the version seen contained; updates in between, which its writer had not seen,
are overwritten. What the last version does not contain is lost.

Entries are taken in the order of their primary keys, which is the order of the UPDATEs where a row lock orders both.
Without a transaction an entry may be written late; one whose writer had seen a version that is not reached yet is
therefore held back until it is.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, NamedTuple

from django_lockstep.lab.simulator.tally import Acknowledged
from django_lockstep.lab.wording import gettext as _
from django_lockstep.lab.wording import listed

AuditStatus = Literal["correct", "lost", "overdrawn", "inconsistent", "untested"]

_HORIZON = 10_000
"""How many updates back an overwritten one is still recognised; fewer are made while one operation runs."""
_LATE = 256
"""How many entries are held back at most, more than there are workers: if there are more, an UPDATE has no entry."""


class AuditedEntry(NamedTuple):
    """What the audit needs of one ledger entry."""

    amount: Decimal
    """Signed."""
    balance_after: Decimal
    """The balance that its writer computed."""
    version_after: int
    """The version that its writer had seen, plus one."""


class Balances(NamedTuple):
    """What the accounts of a strategy hold together at an instant."""

    stored: Decimal
    """What the database says."""
    booked: Decimal
    """What they should hold by their entries."""
    difference: Decimal
    """How far each is from that, added up without signs. Where entries are not written together with balances, what is
    being written counts, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedAccount:
    """One account at the end, with its entries."""

    account: Hashable
    """Its key."""
    opening_balance: Decimal
    """The balance that it began with."""
    opening_version: int
    """The version that it began with."""
    overdraft_limit: Decimal
    """How far below zero the balance may go."""
    balance: Decimal
    """What the database holds now."""
    entries: Iterable[AuditedEntry]
    """Its entries in the order of their keys; read once."""


@dataclass(slots=True, kw_only=True)
class AuditVerdict:
    """What was found, over all accounts."""

    entries: int = 0
    """Entries in the database."""
    overwritten: int = 0
    """Entries whose change was overwritten by a writer that had not seen it."""
    missing: int = 0
    """Changes that succeeded as far as a worker knows, and that have no entry."""
    unexpected: int = 0
    """Entries of changes that did not succeed as far as any worker knows, such as half of a transfer."""
    broken_links: int = 0
    """Entries whose balance is not the one before plus their amount."""
    money_lost: Decimal = Decimal(0)
    """How far balances are from the sum of their entries, added up without their signs."""
    money_difference: Decimal = Decimal(0)
    """The same with their signs: positive where the database holds more than the entries say."""
    overdrawn_accounts: int = 0
    """Accounts from which more was paid out than balance and overdraft limit covered."""
    overdrawn_by: Decimal = Decimal(0)
    """How much more was paid out."""
    without_acknowledgements: bool = False
    """Whether a worker died with what it knew, so that only the database's own consistency was checked."""

    @property
    def lost_updates(self) -> int:
        """Changes that were acknowledged as successful, and that are not in the balance."""
        return self.overwritten + self.missing

    @property
    def status(self) -> AuditStatus:
        """The verdict in one word; the worst that applies."""
        if self.lost_updates:
            return "lost"
        if self.overdrawn_accounts:
            return "overdrawn"
        if self.money_lost or self.unexpected or self.broken_links:
            return "inconsistent"
        return "correct" if self.entries else "untested"

    @property
    def loss(self) -> str:
        """What went wrong, as the rest of a sentence about the strategy."""
        lost, overdrawn = self.lost_updates, f"{self.overdrawn_by:,.2f}"
        total = self.entries + self.missing
        parts = [
            sentence
            for number, sentence in (
                (lost, _("lost {number} of {total} updates", number=lost, total=total)),
                (self.overdrawn_accounts, _("paid out {amount} more than was covered", amount=overdrawn)),
                (self.money_lost, _("left the balance wrong by {amount}", amount=f"{self.money_lost:,.2f}")),
                (
                    self.unexpected,
                    _("left {number} entries of changes that were not acknowledged", number=self.unexpected),
                ),
            )
            if number
        ]
        broken = _("left {number} entries whose balance does not follow from the one before", number=self.broken_links)
        return listed(parts or [broken])


def audit(accounts: Iterable[AuditedAccount], *, acknowledged: Mapping[Hashable, Acknowledged] | None) -> AuditVerdict:
    """Return the verdict on these accounts.

    ``acknowledged`` are the changes that succeeded as far as the workers know, by account; None where a worker died
    with what it knew.
    """
    verdict = AuditVerdict(without_acknowledgements=acknowledged is None)
    for account in accounts:
        booked, surviving = _replay_entries(account, verdict)
        # A worker that died may have committed what nobody knows of; then the entries alone say what to expect.
        expected = booked if acknowledged is None else acknowledged.get(account.account, Acknowledged())
        verdict.entries += booked.count
        verdict.overwritten += booked.count - surviving
        verdict.missing += max(0, expected.count - booked.count)
        verdict.unexpected += max(0, booked.count - expected.count)
        _compare_balance(account, account.opening_balance + expected.total, verdict)
    return verdict


def _replay_entries(account: AuditedAccount, verdict: AuditVerdict) -> tuple[Acknowledged, int]:
    """Go through the entries once; return their count and sum, and how many are in the balance at the end."""
    booked, replay, before = Acknowledged(), UpdateReplay(account.opening_version), account.opening_balance
    for entry in account.entries:
        booked.count += 1
        booked.total += entry.amount
        replay.add(entry.version_after - 1)
        verdict.broken_links += entry.balance_after != before + entry.amount
        before = entry.balance_after
    return booked, replay.surviving()


def _compare_balance(account: AuditedAccount, expected: Decimal, verdict: AuditVerdict) -> None:
    """Add to the verdict how far the balance is from the expected one, and whether the account is overdrawn."""
    difference = account.balance - expected
    verdict.money_lost += abs(difference)
    verdict.money_difference += difference
    # The smaller one: a lost withdrawal hides in the balance that more was paid out, a lost deposit in the sum.
    beyond = -account.overdraft_limit - min(expected, account.balance)
    if beyond > 0:
        verdict.overdrawn_accounts += 1
        verdict.overdrawn_by += beyond


@dataclass(slots=True)
class UpdateReplay:
    """Counts how many updates of one account are in its balance; see the module's docstring."""

    version: int
    """The version that the updates so far have led to."""
    contained: deque[int] = field(default_factory=lambda: deque([0], maxlen=_HORIZON))
    """How many updates are in the balance of each version, up to this one."""
    early: list[int] = field(default_factory=list)
    """A heap of versions seen by writers of entries that are held back, since entries of earlier updates are still to
    come."""

    def add(self, seen: int) -> None:
        """Add the next entry, by the version that its writer had seen."""
        heapq.heappush(self.early, seen)
        while self.early and (self.early[0] <= self.version or len(self.early) > _LATE):
            self._apply(heapq.heappop(self.early))

    def surviving(self) -> int:
        """Return how many updates are in the balance at the end."""
        while self.early:
            self._apply(heapq.heappop(self.early))
        return self.contained[-1]

    def _apply(self, seen: int) -> None:
        # An UPDATE without an entry is not counted, but it has raised the version.
        self.contained.extend([self.contained[-1]] * min(seen - self.version, _HORIZON))
        self.version = max(self.version, seen)
        # An update that is older than the horizon counts as based on the oldest version still known.
        back = min(self.version - seen, len(self.contained) - 1)
        self.contained.append(self.contained[-1 - back] + 1)
        self.version += 1
