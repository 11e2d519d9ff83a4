"""The verdict: what the database holds at the end, against its entries and against what the workers were told.

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

from django_lockstep.lab.simulator.tally import Told

__all__ = ["Booking", "Ledger", "Status", "Verdict", "audit"]

Status = Literal["correct", "lost", "overdrawn", "inconsistent", "untested"]

_HORIZON = 10_000
"""How many updates back an overwritten one is still recognised; more than are made while one operation runs."""
_LATE = 256
"""How many entries are held back at most, more than there are workers: else an UPDATE has remained without entry."""


class Booking(NamedTuple):
    """An entry, as far as it matters here."""

    amount: Decimal
    """Signed."""
    balance_after: Decimal
    """What its writer believed the balance to be."""
    version_after: int
    """The version that its writer had seen, plus one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """One account at the end."""

    account: Hashable
    """Its key."""
    opening: Decimal
    """The balance that it began with."""
    opening_version: int
    """The version that it began with."""
    overdraft_limit: Decimal
    """How far below zero the balance may go."""
    balance: Decimal
    """What the database holds now."""
    bookings: Iterable[Booking]
    """Its entries in the order of their keys; read once."""


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What was found, over all accounts."""

    entries: int = 0
    """Entries in the database."""
    overwritten: int = 0
    """Entries whose change was overwritten by somebody who had not seen it."""
    missing: int = 0
    """Changes that a worker was told had succeeded, and that have no entry."""
    unexpected: int = 0
    """Entries of changes that no worker was told had succeeded, such as half of a transfer."""
    broken_links: int = 0
    """Entries whose balance is not the one before plus their amount."""
    money_lost: Decimal = Decimal(0)
    """How far balances are from what was booked, summed up without their signs."""
    money_difference: Decimal = Decimal(0)
    """The same with their signs: positive where the database holds more than was booked."""
    overdrawn_accounts: int = 0
    """Accounts from which more was paid out than balance and overdraft limit covered."""
    overdrawn_by: Decimal = Decimal(0)
    """How much more."""
    from_ledger_alone: bool = False
    """Whether what the workers were told is not known in full, so that only the database's own consistency counted."""

    @property
    def lost_updates(self) -> int:
        """Changes that somebody was told had succeeded, and that are not in the balance."""
        return self.overwritten + self.missing

    @property
    def status(self) -> Status:
        """The verdict in one word; the worst that applies."""
        if self.lost_updates:
            return "lost"
        if self.overdrawn_accounts:
            return "overdrawn"
        if self.money_lost or self.unexpected or self.broken_links:
            return "inconsistent"
        return "correct" if self.entries else "untested"


def audit(ledgers: Iterable[Ledger], *, told: Mapping[Hashable, Told] | None) -> Verdict:
    """Return the verdict on these accounts; ``told`` None where a worker died with what it knew."""
    verdict = Verdict(from_ledger_alone=told is None)
    for ledger in ledgers:
        booked, surviving = _read(ledger, verdict)
        expected = booked if told is None else told.get(ledger.account, Told())
        verdict.entries += booked.count
        verdict.overwritten += booked.count - surviving
        verdict.missing += max(0, expected.count - booked.count)
        verdict.unexpected += max(0, booked.count - expected.count)
        _weigh(ledger, ledger.opening + expected.total, verdict)
    return verdict


def _read(ledger: Ledger, verdict: Verdict) -> tuple[Told, int]:
    """Go through the entries once; return their count and sum, and how many are in the balance at the end."""
    booked, history, before = Told(), History(ledger.opening_version), ledger.opening
    for booking in ledger.bookings:
        booked.add(count=1, total=booking.amount)
        history.add(booking.version_after - 1)
        verdict.broken_links += booking.balance_after != before + booking.amount
        before = booking.balance_after
    return booked, history.surviving()


def _weigh(ledger: Ledger, expected: Decimal, verdict: Verdict) -> None:
    """Compare the balance with the one that it should be."""
    difference = ledger.balance - expected
    verdict.money_lost += abs(difference)
    verdict.money_difference += difference
    beyond = -ledger.overdraft_limit - min(expected, ledger.balance)
    if beyond > 0:
        verdict.overdrawn_accounts += 1
        verdict.overdrawn_by += beyond


@dataclass(slots=True)
class History:
    """How many updates of one account are in its balance; see the module's docstring."""

    version: int
    """The version that the updates so far have led to."""
    contained: deque[int] = field(default_factory=lambda: deque([0], maxlen=_HORIZON))
    """How many updates are in the balance of each version, up to this one."""
    early: list[int] = field(default_factory=list)
    """A heap of versions seen by writers whose turn has not come: entries of others are still to be read."""

    def add(self, seen: int) -> None:
        """Take in the next entry, by the version that its writer had seen."""
        heapq.heappush(self.early, seen)
        while self.early and (self.early[0] <= self.version or len(self.early) > _LATE):
            self._write(heapq.heappop(self.early))

    def surviving(self) -> int:
        """Return how many updates are in the balance at the end."""
        while self.early:
            self._write(heapq.heappop(self.early))
        return self.contained[-1]

    def _write(self, seen: int) -> None:
        # An UPDATE without an entry counts for nothing, but it led to a version.
        self.contained.extend([self.contained[-1]] * min(seen - self.version, _HORIZON))
        self.version = max(self.version, seen)
        back = min(self.version - seen, len(self.contained) - 1)
        self.contained.append(self.contained[-1 - back] + 1)
        self.version += 1
