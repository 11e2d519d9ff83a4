"""What a step reads, locks and writes, and which steps depend on each other: the relation that the reduction rests on.

Two steps are independent when they commute: neither enables, delays nor changes the other (A. Mazurkiewicz, "Trace
Theory", 1987). On PostgreSQL at READ COMMITTED a read never depends on an uncommitted write but on
the commit; writes and locks depend on each other through the row locks (PostgreSQL documentation, table 13.3).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum

__all__ = [
    "ADVISORY",
    "EVERYTHING",
    "LOCAL",
    "OPAQUE",
    "Access",
    "Change",
    "End",
    "Footprint",
    "FootprintKey",
    "LockedKey",
    "Mode",
    "Place",
    "any_same_row",
    "collide",
    "dependent",
    "same_row",
]

FootprintKey = tuple[str, int | None]
"""A table and the primary key of a row in it; None for any row."""
ADVISORY = "advisory lock"
"""The name of a table that stands for all advisory locks, as its rows."""
EVERYTHING: FootprintKey = ("", None)
"""Stands for any row of any table, where it is not known which."""


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


Change = tuple[FootprintKey, int]
"""The change of a row by the transaction that commits so many-th of those which change it in the run."""


class End(Enum):
    """How a step ends its transaction, or a part of it."""

    WRITTEN = "a COMMIT of changes"
    READ = "a COMMIT, maybe of nothing"
    UNDONE = "a failure, a ROLLBACK, or one to a savepoint"


_COMMITS = frozenset({End.WRITTEN, End.READ})


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a step is in the graph of who may have a conflict with whom; see `ConflictGraph`."""

    actor: int
    near: frozenset[int]
    """The actor, and those with which the step may add a conflict."""
    linked: frozenset[int]
    """The actor, and those with which its transaction may have one."""
    linked_twice: frozenset[int]
    """Those, and those with which these may have one."""
    saves: frozenset[int]
    """Those that may be refused for a transaction that the step may doom, and not after it."""
    end: End | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a step of a SERIALIZABLE transaction reads and writes, as far as other ones may be refused for it.

    A row without a key stands for more of its table than rows that are known: for what the server locks by pages or as
    a whole, and for what adds entries to indexes.
    """

    read: frozenset[FootprintKey]
    written: frozenset[FootprintKey]
    held: frozenset[FootprintKey]
    """Rows that the transaction has updated before, so that no other one changes them before it ends."""
    watched: frozenset[FootprintKey]
    """What it has read by then, if it has written; of one that has not, no conflict makes a pivot."""
    committed: frozenset[FootprintKey]
    """What it has written by then, if the step commits it, or would if it did not fail."""
    will_write: frozenset[FootprintKey] = frozenset()
    """What it may write from then on, if the step takes its snapshot."""
    stale: frozenset[str] = frozenset()
    """Tables of which it reads rows as they were before others changed them."""
    place: Place | None = None
    """Where in the graph of conflicts; None if that is not known."""
    dangerous: bool = False
    """Whether a transaction may be refused because of the step; see `django_lockstep.lab.explorer.overlap`."""

    def meets(self, other: Access) -> bool:
        """Whether only one of the two orders may be a read-write conflict between this reader and that writer."""
        # An index page is locked for a read, and not for the entries that were there before. That a row was read and
        # changed is noted in both orders.
        written = other.written - self.held
        rows = any(read[0] == row[0] and None in (read[1], row[1]) for row in written for read in self.read)
        # The next change of a row of which it reads an older version is none of that, unless it meets the index page.
        return rows or any(key is None and table in self.stale for table, key in written)

    def notices(self, other: Access) -> bool:
        """Whether the other one commits something that the transaction may have read.

        Or, if it takes its snapshot here, has read what it may write: only if that commits later, the two overlap.
        """
        if not other.committed:
            return False
        return any_same_row(other.committed - self.held, self.watched) or any_same_row(self.will_write, other.watched)


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
    snapshot: frozenset[FootprintKey] = frozenset()
    """Rows of which it fixes what its transaction will see; `EVERYTHING` among them if it is not known which."""
    changes: frozenset[Change] = frozenset()
    """Changes of single rows that are certain among those published."""
    late_for: frozenset[Change] = frozenset()
    """Changes because of which it was refused at its older snapshot, and would have been after any others as well."""
    accesses: frozenset[Access] = frozenset()
    """Those of SERIALIZABLE transactions, which have one for each step."""
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
            snapshot=self.snapshot | other.snapshot,
            changes=self.changes | other.changes,
            late_for=self.late_for | other.late_for,
            accesses=self.accesses | other.accesses,
            opaque=self.opaque or other.opaque,
        )

    @property
    def dangerous(self) -> bool:
        """Whether a SERIALIZABLE transaction may be refused because of the step."""
        return any(access.dangerous for access in self.accesses)


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
    """Whether a SERIALIZABLE transaction may be refused or not for the order of the steps."""
    return any(_decide(mine, theirs) for mine in one.accesses for theirs in other.accesses)


def _decide(mine: Access, theirs: Access) -> bool:
    if (mine.dangerous or theirs.dangerous) and _decide_together(mine, theirs):
        return True
    return any(one.notices(other) or one.meets(other) for one, other in ((mine, theirs), (theirs, mine)))


def _decide_together(mine: Access, theirs: Access) -> bool:
    """Whether the order of two steps may decide who is refused, of which at least one is dangerous."""
    one, other = mine.place, theirs.place
    if one is None or other is None:
        return True
    if one.end is None and other.end is None:
        # One adds a conflict with the other, or dooms a transaction for which the other would be refused.
        return one.actor in other.near | other.saves or other.actor in one.near | one.saves
    if one.end is None or (one.end is End.UNDONE and other.end is not None):
        one, other, mine, theirs = other, one, theirs, mine
    if one.end is End.UNDONE:
        return _undoing_matters(one, other, dangerous=theirs.dangerous)
    return _commit_matters(one, other, dangerous=mine.dangerous)


def _undoing_matters(one: Place, other: Place, *, dangerous: bool) -> bool:
    """Whether it may decide who is refused that the first step undoes what its transaction has done.

    ``dangerous``: the other one is.
    """
    if dangerous or other.end is not None:
        near = one.actor in other.linked
    else:  # it only adds conflicts, and may be refused for none
        near = one.actor in other.near or other.actor in one.near
    return near or one.actor in other.saves or other.actor in one.saves


def _commit_matters(one: Place, other: Place, *, dangerous: bool) -> bool:
    """Whether it may decide who is refused that the first step commits, which is dangerous or not."""
    if other.end in _COMMITS or (dangerous and other.end is None):
        # It dooms a transaction that may be the first one of a path to one between it and the other step.
        return not one.linked_twice.isdisjoint(other.linked)
    if dangerous:
        return not one.linked.isdisjoint(other.linked)
    # Of one that has written nothing it matters from now on when its snapshot was taken.
    reader = one.end is End.READ and not one.linked.isdisjoint(other.near)
    return reader or one.actor in other.linked or other.actor in one.saves


def _affects(one: Footprint, other: Footprint) -> bool:
    """Whether what the first publishes or releases matters to the second."""
    # A snapshot is taken of the whole database, not only of the tables that the statement names: a commit before it or
    # after it makes a difference to what later statements see.
    seen = any_same_row(one.publishes, other.reads) or any_same_row(one.publishes, other.snapshot)
    seen = seen or (bool(one.publishes) and EVERYTHING in other.snapshot)
    seen = seen or not one.changes.isdisjoint(other.late_for)
    # Whoever takes or releases a lock decides whether another one is refused it.
    return seen or collide(one.releases, other.locks) or collide(one.releases | one.locks, other.tried)


def collide(some: frozenset[LockedKey], others: frozenset[LockedKey]) -> bool:
    """Whether one of the first locks conflicts with one of the others."""
    return any(mode in _CONFLICTS[taken] and same_row(key, row) for row, taken in some for key, mode in others)


def any_same_row(some: Iterable[FootprintKey], others: Iterable[FootprintKey]) -> bool:
    """Whether one of the first may be one of the others."""
    return any(same_row(one, other) for one in some for other in others)


def same_row(one: FootprintKey, other: FootprintKey) -> bool:
    """Whether the keys may be those of one row."""
    return one[0] == other[0] and (one[1] == other[1] or one[1] is None or other[1] is None)
