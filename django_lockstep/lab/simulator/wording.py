"""Small pieces of sentences."""

from __future__ import annotations

from collections.abc import Iterable

from django_lockstep.lab.simulator.audit import Verdict

__all__ = ["counted", "listed", "loss"]


def listed(words: Iterable[str]) -> str:
    """Return the words as one enumeration: ``a, b and c``."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def counted(number: int, thing: str, things: str | None = None) -> str:
    """Return the number with its noun, in the plural where it needs one; ``things``: where that has more than an s."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def loss(verdict: Verdict, *, brief: bool = False) -> str:
    """Return what went wrong, as the rest of a sentence about the strategy; ``brief``: only the worst of it."""
    updates = counted(verdict.entries + verdict.missing, "update")
    parts = [
        words
        for number, words in (
            (verdict.lost_updates, f"lost {verdict.lost_updates:,} of {updates}"),
            (verdict.overdrawn_accounts, f"paid out {verdict.overdrawn_by:,.2f} more than was covered"),
            (verdict.money_lost, f"left the balance wrong by {verdict.money_lost:,.2f}"),
            (verdict.unexpected, f"left {verdict.unexpected:,} entries of changes that were not acknowledged"),
        )
        if number
    ]
    if not parts:
        parts = [f"left {verdict.broken_links:,} entries whose balance does not follow from the one before"]
    return listed(parts[:1] if brief else parts)
