"""Small pieces of sentences that the lab's reports share."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["counted", "listed"]


def listed(words: Iterable[str]) -> str:
    """Return the words as one enumeration: ``a, b and c``."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def counted(number: int, thing: str, things: str | None = None) -> str:
    """Return the number with its noun; ``things`` is the plural where it is not ``thing`` with an s."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"
