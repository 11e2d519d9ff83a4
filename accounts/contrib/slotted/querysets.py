"""Query sets of slotted accounts with their totals, and locks on their slots."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.db import connections, models
from django.db.models import OuterRef, Subquery, Sum
from django.db.models.functions import Coalesce

__all__ = ["SlottedAccountQuerySet", "lock_slots", "slot_sums"]

_NOTHING = Decimal("0.00")


def slot_sums() -> dict[str, Coalesce]:
    """Return the aggregates over slots: ``total_balance`` and ``total_limit``."""
    columns = {"total_balance": "balance", "total_limit": "overdraft_limit"}
    return {name: Coalesce(Sum(column), _NOTHING) for name, column in columns.items()}


def lock_slots(slots: models.QuerySet[Any]) -> list[Any]:
    """Lock the slots in primary-key order, ``FOR NO KEY UPDATE`` where the database supports it; return them."""
    no_key = connections[slots.db].features.has_select_for_no_key_update
    return list(slots.select_for_update(no_key=no_key).order_by("pk"))


class SlottedAccountQuerySet(models.QuerySet[Any]):
    """Adds the totals of the slots."""

    def with_totals(self) -> SlottedAccountQuerySet:
        """Add ``total_balance`` and ``total_limit``, the exact sums of each account's slots, in the same statement."""
        slots = self.model._meta.get_field("slots").related_model._base_manager
        # Subqueries instead of a join, which count() would have to keep.
        rows = slots.filter(account=OuterRef("pk")).order_by().values("account").annotate(**slot_sums())
        parts = {name: Coalesce(Subquery(rows.values(name)), _NOTHING) for name in slot_sums()}
        totalled: SlottedAccountQuerySet = self.annotate(**parts)
        return totalled
