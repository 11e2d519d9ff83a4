"""What a step reads, locks and writes, and which steps depend on each other: the relation that the reduction rests on.

Two steps are independent when they commute: neither enables, delays nor changes the other (A. Mazurkiewicz, "Trace
Theory", 1987). On PostgreSQL at READ COMMITTED a read never depends on an uncommitted write but on
the commit; writes and locks depend on each other through the row locks (PostgreSQL documentation, table 13.3).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import IntEnum

__all__ = [
    "ADVISORY",
    "LOCAL",
    "OPAQUE",
    "BlindInsert",
    "Footprint",
    "FootprintKey",
    "LockedKey",
    "Mode",
    "collide",
    "dependent",
]

FootprintKey = tuple[str, int | None]
"""A table and the primary key of a row in it; None for any row."""
ADVISORY = "advisory lock"
"""The name of a table that stands for all advisory locks, as its rows."""


class Mode(IntEnum):
    """Row locks in growing strength, the insertion of a row, and the uniqueness of a key."""

    KEY_SHARE = 0
    SHARE = 1
    NO_KEY_UPDATE = 2
    UPDATE = 3
    INSERT = 4
    UNIQUE = 5
    """Of one key of an index, or of any key of a table; it also stands for the order in which rows are numbered."""


LockedKey = tuple[FootprintKey, Mode]

_CONFLICTS: dict[Mode, frozenset[Mode]] = {
    # A row that refers to another one depends on whether that is there yet.
    Mode.KEY_SHARE: frozenset({Mode.UPDATE, Mode.INSERT}),
    Mode.SHARE: frozenset({Mode.NO_KEY_UPDATE, Mode.UPDATE}),
    # An UPDATE that changes no key lets FOR KEY SHARE pass, so that inserting a child does not wait for it.
    Mode.NO_KEY_UPDATE: frozenset({Mode.SHARE, Mode.NO_KEY_UPDATE, Mode.UPDATE}),
    Mode.UPDATE: frozenset(Mode),
    # Inserters wait for a deleter of the key, and for each other where the key is the same or not known.
    Mode.INSERT: frozenset({Mode.KEY_SHARE, Mode.UPDATE, Mode.UNIQUE}),
    Mode.UNIQUE: frozenset({Mode.UPDATE, Mode.INSERT, Mode.UNIQUE}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindInsert:
    """An INSERT that adds no conflict between SERIALIZABLE transactions; see `django_lockstep.lab.explorer.overlap`."""

    target: frozenset[str]
    """Tables that it inserts into: reads of them matter."""
    watched: frozenset[str]
    """Tables that its transaction has read: writes to them matter."""
    held: frozenset[FootprintKey]
    """Rows in these that its transaction has updated, so that no other one has."""

    def may_conflict(self, other: Footprint) -> bool:
        """Whether the order of the INSERT and a step of another SERIALIZABLE transaction may matter."""
        read = other.reads | {key for key, mode in other.locks if mode not in (Mode.INSERT, Mode.UNIQUE)}
        # Locks from this strength on stand for writes that are not published yet, INSERT among them.
        written = other.publishes | {key for key, mode in other.locks if mode >= Mode.NO_KEY_UPDATE}
        return any(table in self.target for table, _ in read) or any(
            # Rows that this transaction has updated stay locked until it ends, so that nobody else writes them before.
            key[0] in self.watched and key not in self.held
            for key in written
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What one step touches."""

    reads: frozenset[FootprintKey] = frozenset()
    """Rows read as last committed."""
    locks: frozenset[LockedKey] = frozenset()
    """Row locks taken, whether asked for or implied by a write."""
    tried: frozenset[LockedKey] = frozenset()
    """Row locks asked for and refused at once, of which it has taken none: two that are refused commute."""
    publishes: frozenset[FootprintKey] = frozenset()
    """Rows whose changes others see from this step on."""
    releases: frozenset[LockedKey] = frozenset()
    """Row locks released."""
    snapshot: bool = False
    """Whether it fixes what a REPEATABLE READ transaction sees, so that it depends on every commit."""
    serializable: bool = False
    """Whether it belongs to a SERIALIZABLE transaction, whose outcome depends on all others of that level."""
    serializable_read: bool = False
    """The same for a read by a transaction that has written nothing: such reads do not depend on each other."""
    blind: frozenset[BlindInsert] = frozenset()
    """The blind INSERT of a SERIALIZABLE transaction; see `BlindInsert`."""
    opaque: bool = False
    """Whether it is not understood, so that it depends on everything."""

    def __or__(self, other: Footprint) -> Footprint:
        """Return the union of both."""
        if self is LOCAL or other is LOCAL:
            return other if self is LOCAL else self
        return Footprint(
            reads=self.reads | other.reads,
            locks=self.locks | other.locks,
            tried=self.tried | other.tried,
            publishes=self.publishes | other.publishes,
            releases=self.releases | other.releases,
            snapshot=self.snapshot or other.snapshot,
            serializable=self.serializable or other.serializable,
            serializable_read=self.serializable_read or other.serializable_read,
            blind=self.blind | other.blind,
            opaque=self.opaque or other.opaque,
        )


LOCAL = Footprint()
"""Touches nothing that other actors could notice."""
OPAQUE = Footprint(opaque=True)
"""Not understood."""


# Asked for every pair of moves of every run, and nearly all runs have the same few footprints.
@functools.lru_cache(maxsize=65536)
def dependent(one: Footprint, other: Footprint) -> bool:
    """Whether the order of the two steps may matter. Symmetric; True wherever that is not known."""
    if LOCAL in (one, other):
        return False
    if one.opaque or other.opaque or _meet_in_conflict_graph(one, other):
        return True
    return _affects(one, other) or _affects(other, one) or collide(one.locks, other.locks)


def _meet_in_conflict_graph(one: Footprint, other: Footprint) -> bool:
    """Whether the steps may change each other's place among the read-write conflicts that SERIALIZABLE watches.

    A transaction that has written nothing has no incoming conflict, so that it is not a pivot, and no read can make it
    one (D. Ports, K. Grittner, "Serializable Snapshot Isolation in PostgreSQL", VLDB 2012). Two reads of such
    transactions only add a conflict each from themselves to writers.
    """
    return (
        (one.serializable and (other.serializable or other.serializable_read))
        or (one.serializable_read and other.serializable)
        or _sees(one, other)
        or _sees(other, one)
    )


def _sees(one: Footprint, other: Footprint) -> bool:
    """Whether a blind INSERT of the first may matter to a SERIALIZABLE transaction's step, or that step to it."""
    return (other.serializable or other.serializable_read or bool(other.blind)) and any(
        insert.may_conflict(other) for insert in one.blind
    )


def _affects(one: Footprint, other: Footprint) -> bool:
    """Whether what the first publishes or releases matters to the second."""
    # A snapshot is taken of the whole database, not only of the tables that the statement names: any commit before it
    # or after it makes a difference to what later statements see.
    seen = (other.snapshot and bool(one.publishes)) or any(
        _same_row(written, read) for written in one.publishes for read in other.reads
    )
    # Whoever takes or releases a lock decides whether another one is refused it.
    return seen or collide(one.releases, other.locks) or collide(one.releases | one.locks, other.tried)


def collide(some: frozenset[LockedKey], others: frozenset[LockedKey]) -> bool:
    """Whether one of the first locks conflicts with one of the others."""
    return any(mode in _CONFLICTS[taken] and _same_row(key, row) for row, taken in some for key, mode in others)


def _same_row(one: FootprintKey, other: FootprintKey) -> bool:
    return one[0] == other[0] and (one[1] == other[1] or one[1] is None or other[1] is None)
