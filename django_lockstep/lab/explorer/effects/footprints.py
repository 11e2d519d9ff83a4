"""What a step does to which objects, and which steps depend on each other: the relation that the reduction rests on.

Two steps are independent when they commute: neither enables, delays nor changes the other (A. Mazurkiewicz, "Trace
Theory", 1987). On PostgreSQL at READ COMMITTED a read never depends on an uncommitted write but on
the commit; writes and locks depend on each other through the row locks (PostgreSQL documentation, table 13.3).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import IntEnum
from typing import Literal, NamedTuple, get_args

FootprintKey = tuple[str, int | None]
"""A table and the primary key of a row in it; None for any row."""
ADVISORY = "advisory lock"
"""The name of a table that stands for all advisory locks, as its rows."""
_ALL = "*"
ANY: FootprintKey = _ALL, None
"""Any row of any table."""


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


Action = Literal[
    "read", "take snapshot", "publish", "lock", "try", "release", "anything",
    "ssi read", "ssi write", "ssi has read", "ssi commit", "ssi danger", "ssi step",
]  # fmt: skip
"""What a step does to a row. It reads a row as last committed; takes the snapshot that all later statements of its
transaction see; has others see its change from now on; locks it, as it says or as a write implies; tries to, is refused
at once and has taken none, so that two that are refused commute; and releases it. Not understood, it may do anything.
What steps do at SERIALIZABLE is told of in `effects.serializable`.
"""


class Event(NamedTuple):
    """One thing that a step does."""

    action: Action
    row: FootprintKey
    mode: Mode | None = None
    """Of a lock."""


Footprint = frozenset[Event]
"""All that one step does."""
LOCAL: Footprint = frozenset()
"""Touches nothing that other actors could notice."""
EVERYTHING = Event("anything", ANY)
OPAQUE: Footprint = frozenset({EVERYTHING})
"""Not understood."""


def touch(action: Action, rows: Iterable[FootprintKey]) -> Footprint:
    """Return that a step does this to these rows."""
    return frozenset(Event(action, row) for row in rows)


def lock(action: Action, locks: Iterable[LockedKey]) -> Footprint:
    """Return that a step does this to these locks."""
    return frozenset(Event(action, row, mode) for row, mode in locks)


def only(actions: Collection[Action], footprint: Footprint) -> Footprint:
    """Return what of it is one of these actions."""
    return frozenset(event for event in footprint if event.action in actions)


def of_any_keys(footprint: Footprint) -> Footprint:
    """Return it with any unique key and any advisory lock for those it names: their values may differ in each run."""
    return frozenset(
        event._replace(row=(event.row[0], None)) if event.mode is Mode.UNIQUE or event.row[0] == ADVISORY else event
        for event in footprint
    )


def same_row(row: FootprintKey, key: FootprintKey) -> bool:
    """Whether the keys may be those of one row."""
    if _ALL in (row[0], key[0]):
        return True
    return row[0] == key[0] and (row[1] == key[1] or row[1] is None or key[1] is None)


def _rows_meet(event: Event, other: Event) -> bool:
    return same_row(event.row, other.row)


def _locks_meet(event: Event, other: Event) -> bool:
    modes = event.mode, other.mode
    return (modes in MODE_CONFLICTS or modes[::-1] in MODE_CONFLICTS) and _rows_meet(event, other)


def _ranges_meet(event: Event, other: Event) -> bool:
    return event.row[0] == other.row[0] and None in (event.row[1], other.row[1])


Meet = Callable[[Event, Event], bool]


class Dependency(NamedTuple):
    """A row of the table of what two steps do, and when their order may matter."""

    words: str
    """The row as the manual prints it."""
    actions: Collection[Action]
    others: Collection[Action]
    meet: Meet = _rows_meet
    """Whether it is so of these two events."""


DEPENDENCIES = (
    Dependency("a COMMIT | a read | if it publishes a change of what is read", {"publish"}, {"read"}),
    Dependency(
        "a COMMIT | the first statement at REPEATABLE READ or SERIALIZABLE | if it publishes any change",
        {"publish"},
        {"take snapshot"},
    ),
    Dependency("a lock | a lock | if they conflict", {"lock"}, {"lock"}, _locks_meet),
    Dependency(
        "the end of a transaction | a lock | if it releases a lock that conflicts", {"release"}, {"lock"}, _locks_meet
    ),
    Dependency(
        "a lock, or the end of a transaction | a lock refused at once | if they conflict",
        {"lock", "release"},
        {"try"},
        _locks_meet,
    ),
    Dependency(
        "a write at SERIALIZABLE | a read at SERIALIZABLE | if either covers more of the table than single rows",
        {"ssi write"},
        {"ssi read"},
        _ranges_meet,
    ),
    Dependency(
        "a COMMIT at SERIALIZABLE | a step of a SERIALIZABLE transaction | "
        "if that transaction has read what the COMMIT publishes, and has written or ends here",
        {"ssi commit"},
        {"ssi has read"},
    ),
    Dependency(
        "a step of a SERIALIZABLE transaction that has written, and has read what was committed meanwhile | "
        "a step at SERIALIZABLE | always",
        {"ssi danger"},
        {"ssi step"},
    ),
    Dependency("a statement that depends on everything | a statement | always", {"anything"}, {*get_args(Action)}),
)
"""When the order of two steps may matter: all that the reduction knows. A row of the manual's table each."""


def conflicts_of(rows: Iterable[Dependency]) -> Mapping[tuple[Action, Action], Meet]:
    """Return when two events conflict, by their actions in either order."""
    pairs = [(row, pair) for row in rows for pair in itertools.product(row.actions, row.others)]
    return {either: row.meet for row, pair in pairs for either in (pair, pair[::-1])}


CONFLICTS = conflicts_of(DEPENDENCIES)


# Called for every pair of moves of every run, and nearly all runs have the same few footprints.
@functools.lru_cache(maxsize=65536)
def dependent(first: Footprint, second: Footprint) -> bool:
    """Whether the order of the two steps may matter. Symmetric; True wherever that is not certain."""
    by_table = _by_table(second)
    for event in first:
        table = event.row[0]
        near = second if table == _ALL else (*by_table.get(table, ()), *by_table.get(_ALL, ()))
        for other in near:
            meet = CONFLICTS.get((event.action, other.action))
            if meet is not None and meet(event, other):
                return True
    return False


@functools.lru_cache(maxsize=4096)
def _by_table(footprint: Footprint) -> Mapping[str, list[Event]]:
    events: dict[str, list[Event]] = {}
    for event in footprint:
        events.setdefault(event.row[0], []).append(event)
    return events
