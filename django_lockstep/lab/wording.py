"""Small pieces of sentences that the lab's reports share."""

from __future__ import annotations

from collections.abc import Iterable


def listed(words: Iterable[str], *, most: int | None = None) -> str:
    """Return the words as one enumeration: ``a, b and c``; of more than ``most`` how many more there are."""
    words = list(words)
    if most is not None and len(words) > most:
        words[most:] = [f"{len(words) - most} more"]
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def counted(number: int, thing: str, things: str | None = None) -> str:
    """Return the number with its noun; ``things`` is the plural where it is not ``thing`` with an s."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"
