"""The columns of tables, and names and values as SQL has them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Column", "Layout", "quote_literal", "quote_name"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    generated: bool
    """Whether a sequence numbers it."""
    stored: bool
    """Whether it stores what is inserted: it is not a generated column."""
    varying: bool
    """Whether it is a time or a UUID, whose values differ from run to run."""
    refers_to: str | None = None
    """The table to whose primary key it alone is a foreign key."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a table is, whatever its rows are."""

    oid: int
    columns: tuple[Column, ...]


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
