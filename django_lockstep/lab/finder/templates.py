"""What a statement's template reads, writes and locks; the data of `statements`, which parses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Condition", "Template", "Value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What a column is compared with, or set to."""

    params: tuple[int, ...] = ()
    """Numbers of the parameters that it is one of; empty unless it is nothing but parameters."""
    literal: str = ""
    """A literal in the SQL: ``NULL``, ``True``, ``False``, or another one's text."""
    columns: frozenset[str] = frozenset()
    """Columns that it is computed from."""
    cases: tuple[tuple[int, int], ...] = ()
    """Where it depends on the row's key, as in ``bulk_update()``: the parameters' numbers of key and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A column that has to be equal to a value; one of those that AND joins in WHERE."""

    table: str
    column: str
    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A statement without its values."""

    verb: str
    """``SELECT``, ``INSERT``, ``UPDATE``, ``DELETE``, ``LOCK``, ``SEND`` for e-mail; ``OTHER`` if it is not known."""
    table: str = ""
    """The table that is written, or the first one that is read."""
    tables: frozenset[str] = frozenset()
    equalities: tuple[Condition, ...] = ()
    tested: frozenset[tuple[str, str]] = frozenset()
    """All tables and columns that decide which rows it takes, in whatever way."""
    assignments: Mapping[str, Value] = field(default_factory=dict, hash=False)
    """What an UPDATE sets, or an INSERT puts into its first row, by column."""
    looks: str = "rows"
    """What a SELECT tells: ``rows``, ``aggregate``, ``exists``, or ``first`` of an order."""
    summed: frozenset[tuple[str, str]] = frozenset()
    """Tables and columns that an aggregate or an order is over."""
    locked: frozenset[str] = frozenset()
    """Tables whose rows a SELECT locks, or that LOCK TABLE locks."""
    advisory: bool = False
    """Whether it takes an advisory lock."""
    of_session: bool = False
    """Whether that lock outlives the transaction."""
    upsert: bool = False
    """Whether it is an INSERT that deals with rows that are there."""
