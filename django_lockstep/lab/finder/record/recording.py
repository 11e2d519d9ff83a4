"""What was recorded of a test suite: units of work with their statements, and the tables that these touch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "SENT_MAIL",
    "ForeignKey",
    "RecordedStatement",
    "Recording",
    "RowRead",
    "Site",
    "Table",
    "UniqueIndex",
    "Unit",
]

SENT_MAIL = "SEND MAIL"
"""Stands where SQL would, for e-mail that was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The innermost line of the project's code that sent a statement."""

    path: str
    """Relative to the project's root; for an installed app, to the folder that it is installed in."""
    line: int
    function: str
    """Its qualified name in its module."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRead:
    """A row that a statement returned, as far as its columns came from a table."""

    table: str
    key: str = ""
    """The fingerprint of its primary key; of several columns joined by commas; empty where it was not returned."""
    values: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Fingerprints of its values, by column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStatement:
    """One statement that succeeded."""

    sql: str
    """With a placeholder ``%s`` for each parameter."""
    params: tuple[str, ...] = ()
    """The fingerprint of each parameter, of several sets those of the first; of a list those of its elements, in
    brackets."""
    types: tuple[str, ...] = ()
    """The Python type of each parameter; ``now`` for a time that was the current one, ``NoneType`` for NULL."""
    transaction: int | None = None
    """Which transaction of the unit it would be in without the test's own one; None with autocommit."""
    isolation: str = "read committed"
    rows: int | None = None
    """How many it returned or changed."""
    read: tuple[RowRead, ...] = ()
    """Rows that it returned; only the first ones of many."""
    alias: str = "default"
    site: Site | None = None
    """None where no line of the project's code is between the handler and the driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit of work that a test had done: what production does as often as it likes, at the same time."""

    test: str
    """The test's id."""
    kind: str
    """``request``, ``asynchronous request`` or ``call``."""
    name: str
    """``POST orders/<int:pk>/pay/`` or ``shop.services.withdraw``."""
    number: int
    """Of a request: how many others, of whatever name, came before it in this test. Of a call: how many of this
    function, outside of requests, that sent a statement. Both count what the test does after its fixtures."""
    inputs: frozenset[str] = frozenset()
    """Fingerprints of the values in the query, the body and the path of a request; of a call's plain arguments."""
    statements: tuple[RecordedStatement, ...] = ()
    key_order: tuple[str, ...] = ()
    """Fingerprints of the primary keys that it read, in the order of the keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueIndex:
    """A unique index, or an exclusion constraint."""

    columns: tuple[str, ...]
    """With those that only expressions of the index name."""
    predicate: tuple[str, ...] = ()
    """Columns of its WHERE clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKey:
    """A column that refers to another table's primary key."""

    column: str
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table that the recorded statements may touch."""

    name: str
    model: str = ""
    """The model's label; empty if it is of none."""
    key: tuple[str, ...] = ()
    """Columns of the primary key."""
    types: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The server's type of each column."""
    unique: tuple[UniqueIndex, ...] = ()
    """The primary key's index is one of them."""
    foreign_keys: tuple[ForeignKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """All units of a run that wrote or locked something."""

    tables: Mapping[str, Table] = field(default_factory=dict, hash=False)
    units: tuple[Unit, ...] = ()
    tests: int = 0
    """How many tests were recorded."""
    notes: tuple[str, ...] = ()
    """Sentences on what could not be recorded."""
