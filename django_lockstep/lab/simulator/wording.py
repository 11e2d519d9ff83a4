"""The phrase for a verdict."""

from __future__ import annotations

from django_lockstep.lab.simulator.audit import AuditVerdict
from django_lockstep.lab.wording import counted, listed

__all__ = ["loss"]


def loss(verdict: AuditVerdict, *, brief: bool = False) -> str:
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
