"""Slotted accounts by the set: what each has, over all its slots; and their slots, locked."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.db import connections, models
from django.db.models import OuterRef, Subquery, Sum
from django.db.models.functions import Coalesce

__all__ = ["SlottedAccountQuerySet", "locked", "sums"]

_NOTHING = Decimal("0.00")


def sums() -> dict[str, Coalesce]:
    """Return the exact sums over slots: ``total_balance`` and ``total_limit``."""
    columns = {"total_balance": "balance", "total_limit": "overdraft_limit"}
    return {name: Coalesce(Sum(column), _NOTHING) for name, column in columns.items()}


def locked(slots: models.QuerySet[Any]) -> list[Any]:
    """Lock the slots in primary-key order, ``FOR NO KEY UPDATE`` where the database has that; return them."""
    no_key = connections[slots.db].features.has_select_for_no_key_update
    return list(slots.select_for_update(no_key=no_key).order_by("pk"))


class SlottedAccountQuerySet(models.QuerySet[Any]):
    """Slotted accounts."""

    def with_totals(self) -> SlottedAccountQuerySet:
        """Add ``total_balance`` and ``total_limit``, the exact sums of each account's slots, in the same statement."""
        slots = self.model._meta.get_field("slots").related_model._base_manager
        # Not by a join, which counting the accounts would have to make too.
        rows = slots.filter(account=OuterRef("pk")).order_by().values("account").annotate(**sums())
        parts = {name: Coalesce(Subquery(rows.values(name)), _NOTHING) for name in sums()}
        totalled: SlottedAccountQuerySet = self.annotate(**parts)
        return totalled
