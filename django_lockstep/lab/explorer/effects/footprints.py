"""What a step reads, locks and writes, and which steps depend on each other: the relation that the reduction rests on.

Two steps are independent when they commute: neither enables, delays nor changes the other (A. Mazurkiewicz, "Trace
Theory", 1987). On PostgreSQL at READ COMMITTED a read never depends on an uncommitted write but on
the commit; writes and locks depend on each other through the row locks (PostgreSQL documentation, table 13.3).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, NamedTuple

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
    ORDER = 6
    """The order in which the rows of a table are placed and timed; no step waits for it."""


LockedKey = tuple[FootprintKey, Mode]

MODE_CONFLICTS = {
    # PostgreSQL documentation, table 13.3. An UPDATE that changes no key lets FOR KEY SHARE pass, so that inserting a
    # child does not wait for it.
    (Mode.KEY_SHARE, Mode.UPDATE),
    (Mode.SHARE, Mode.NO_KEY_UPDATE),
    (Mode.SHARE, Mode.UPDATE),
    (Mode.NO_KEY_UPDATE, Mode.NO_KEY_UPDATE),
    (Mode.NO_KEY_UPDATE, Mode.UPDATE),
    (Mode.UPDATE, Mode.UPDATE),
    # A row that refers to another one depends on whether that is there yet.
    (Mode.KEY_SHARE, Mode.INSERT),
    # Inserters wait for a deleter of the key, and for each other where the key is the same or not known.
    (Mode.UPDATE, Mode.INSERT),
    (Mode.UPDATE, Mode.UNIQUE),
    (Mode.INSERT, Mode.UNIQUE),
    (Mode.UNIQUE, Mode.UNIQUE),
    (Mode.ORDER, Mode.ORDER),
}
"""The modes whose locks of one row, key or table conflict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SerializableAccess:
    """What a step of a SERIALIZABLE transaction reads and writes, as far as other ones may be refused for it.

    The server refuses a transaction N (40001) as the pivot of two read-write conflicts, F -> N -> Z, whose Z was the
    first to commit: N has read what Z wrote, and F what N wrote (D. Ports, K. Grittner, "Serializable Snapshot
    Isolation in PostgreSQL", VLDB 2012). A conflict on a single row is noted in both orders. A row without a key stands
    for more of its table than that: for what the server locks by pages or as a whole, and for what adds entries to
    indexes, which meet the locks of earlier reads alone.
    """

    read: frozenset[FootprintKey]
    written: frozenset[FootprintKey]
    read_set: frozenset[FootprintKey]
    """What the transaction has read by then, if it has written: without a write it is no pivot."""
    committed: frozenset[FootprintKey]
    """What the transaction has written by then, if the step commits it, or would if it did not fail."""
    ends: bool
    """Whether the step ends the transaction, which counts no more as F then if it is rolled back."""
    dangerous: bool
    """Whether the transaction may be refused from here on, because a Z has committed; or it is READ ONLY, and asks
    whether others have ended."""

    def may_conflict_with(self, writer: SerializableAccess) -> bool:
        """Whether a read-write conflict between this reader and that writer depends on their order."""
        return any(read[0] == row[0] and None in (read[1], row[1]) for row in writer.written for read in self.read)

    def meets_commit_of(self, ending: SerializableAccess) -> bool:
        """Whether the other step commits something that this transaction may have read, or before this one ends."""
        return bool(ending.committed) and (self.ends or any_same_row(ending.committed, self.read_set))


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
    """Whether it takes the snapshot that all later statements of its transaction see."""
    accesses: frozenset[SerializableAccess] = frozenset()
    """Those of SERIALIZABLE transactions, which have one for each step."""
    opaque: bool = False
    """Whether it is not understood, so that it depends on everything."""

    def __or__(self, more: Footprint) -> Footprint:
        """Return the union of both."""
        if self is LOCAL or more is LOCAL:
            return more if self is LOCAL else self
        return Footprint(
            reads=self.reads | more.reads,
            locks=self.locks | more.locks,
            tried=self.tried | more.tried,
            publishes=self.publishes | more.publishes,
            releases=self.releases | more.releases,
            snapshot=self.snapshot or more.snapshot,
            accesses=self.accesses | more.accesses,
            opaque=self.opaque or more.opaque,
        )

    @property
    def of_any_keys(self) -> Footprint:
        """It with any unique key and any advisory lock for those that it names: their values may differ in each run."""
        locks, tried, releases = (
            frozenset(
                ((table, None if mode is Mode.UNIQUE or table == ADVISORY else key), mode)
                for (table, key), mode in keys
            )
            for keys in (self.locks, self.tried, self.releases)
        )
        return replace(self, locks=locks, tried=tried, releases=releases)


@dataclass(slots=True)
class Commits:
    """The COMMITs of a run at SERIALIZABLE."""

    written: list[frozenset[FootprintKey]] = field(default_factory=list)
    """What each transaction has written, in the order of the COMMITs."""
    may_be_any: bool = False
    """Whether a step was not understood, which may have committed anything."""


LOCAL = Footprint()
"""Touches nothing that other actors could notice."""
OPAQUE = Footprint(opaque=True)
"""Not understood."""


class Dependency(NamedTuple):
    """A row of the table of what two steps do, and when their order may matter."""

    first: str
    second: str
    when: str
    holds: Callable[[Footprint, Footprint], bool]
    """Whether it is so of these two steps, in this order."""


def _of_transactions(holds: Callable[[SerializableAccess, SerializableAccess], bool]) -> Any:
    return lambda first, second: any(holds(mine, theirs) for mine in first.accesses for theirs in second.accesses)


DEPENDENCIES = (
    Dependency(
        "a COMMIT",
        "a read",
        "if it publishes a change of what is read",
        lambda first, second: any_same_row(first.publishes, second.reads),
    ),
    Dependency(
        "a COMMIT",
        "the first statement at REPEATABLE READ or SERIALIZABLE",
        "if it publishes any change",
        # A snapshot is taken of the whole database, not only of the tables that the statement names.
        lambda first, second: second.snapshot and bool(first.publishes),
    ),
    Dependency("a lock", "a lock", "if they conflict", lambda first, second: collide(first.locks, second.locks)),
    Dependency(
        "the end of a transaction",
        "a lock",
        "if it releases a lock that conflicts",
        lambda first, second: collide(first.releases, second.locks),
    ),
    Dependency(
        "a lock, or the end of a transaction",
        "a lock refused at once",
        "if they conflict",
        lambda first, second: collide(first.releases | first.locks, second.tried),
    ),
    Dependency(
        "a write at SERIALIZABLE",
        "a read at SERIALIZABLE",
        "if either covers more of the table than single rows",
        _of_transactions(lambda writer, reader: reader.may_conflict_with(writer)),
    ),
    Dependency(
        "a COMMIT at SERIALIZABLE",
        "a step of a SERIALIZABLE transaction",
        "if that transaction has read what the COMMIT publishes, and has written or ends here",
        _of_transactions(lambda ending, mine: mine.meets_commit_of(ending)),
    ),
    Dependency(
        "a step of a SERIALIZABLE transaction that has written, and has read what was committed meanwhile",
        "a step at SERIALIZABLE",
        "always",
        _of_transactions(lambda mine, theirs: mine.dangerous),
    ),
    Dependency(
        "a statement that depends on everything",
        "a statement",
        "always",
        lambda first, second: first.opaque,
    ),
)
"""When the order of two steps may matter: all that the reduction knows. A row of the manual's table each."""


# Called for every pair of moves of every run, and nearly all runs have the same few footprints.
@functools.lru_cache(maxsize=65536)
def dependent(first: Footprint, second: Footprint) -> bool:
    """Whether the order of the two steps may matter. Symmetric; True wherever that is not certain."""
    if LOCAL in (first, second):
        return False
    return any(row.holds(first, second) or row.holds(second, first) for row in DEPENDENCIES)


def collide(some: frozenset[LockedKey], others: frozenset[LockedKey]) -> bool:
    """Whether one of the first locks conflicts with one of the others."""
    return any(
        ((taken, mode) in MODE_CONFLICTS or (mode, taken) in MODE_CONFLICTS) and same_row(key, row)
        for row, taken in some
        for key, mode in others
    )


def any_same_row(some: Iterable[FootprintKey], others: Iterable[FootprintKey]) -> bool:
    """Whether one of the first may be one of the others."""
    return any(same_row(row, key) for row in some for key in others)


def same_row(row: FootprintKey, key: FootprintKey) -> bool:
    """Whether the keys may be those of one row."""
    return row[0] == key[0] and (row[1] == key[1] or row[1] is None or key[1] is None)
