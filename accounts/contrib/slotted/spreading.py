"""Which slot a connection writes."""

from __future__ import annotations

import threading
import time
from decimal import ROUND_DOWN, Decimal
from typing import Any, cast

from django.db import connections

from accounts.amounts import PLACES
from accounts.bounded import Bounded
from accounts.engine import compiled_by
from accounts.engine.changes import Applied, Change
from accounts.errors import InsufficientFunds

__all__ = ["SHELF_LIFE", "add", "number_here", "shares", "size_of", "slot_here", "try_add"]

SHELF_LIFE = 5.0
"""Seconds for which a process believes that an account still has the size that it read."""
_CENT = Decimal(1).scaleb(-PLACES)
_sizes: Bounded[tuple[str, type[Any], Any], tuple[float, int]] = Bounded()
"""For the accounts asked about last: when the size was read, and what it was."""


def shares(amount: Decimal, count: int) -> list[Decimal]:
    """Return the amount in so many parts that differ by a cent at most, the larger ones first.

    Of two amounts, each part of the one that is nearer to zero is so too. Raises ``ValueError`` for less than one part.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"size must be a whole number of at least 1, not {count!r}")
    least = (amount / count).quantize(_CENT, rounding=ROUND_DOWN)
    cent = _CENT.copy_sign(amount)
    larger = int((amount - least * count) / cent)
    return [least + cent] * larger + [least] * (count - larger)


def size_of(model: type[Any], pk: Any, *, using: str, now: bool = False) -> int:
    """Return how many slots of the account take deposits; unless ``now``, as it was a few seconds ago.

    An old answer does no harm: every slot counts, also one that is no longer needed. Raises ``DoesNotExist``.
    """
    key, at = (using, model, pk), time.monotonic()
    read, size = _sizes.get(key, (-SHELF_LIFE, 0))
    if now or at - read >= SHELF_LIFE:
        size = model._base_manager.using(using).values_list("size", flat=True).get(pk=pk)
        _sizes[key] = at, size
    return size


def number_here(size: int, using: str) -> int:
    """Return the number of the slot that this connection writes; sessions are numbered one after the other."""
    connection = connections[using]
    connection.ensure_connection()
    session = getattr(getattr(connection.connection, "info", None), "backend_pid", None)
    return int(session or threading.get_native_id()) % size


def add(model: type[Any], pk: Any, amount: Decimal, *, key: str | None = None, using: str) -> Applied:
    """Add a signed amount to the slot of this connection; return what that came to, of the slot."""
    applied = try_add(model, pk, amount, key=key, using=using)
    if applied is None:
        # By the account's size now; here it is said why.
        slot = slot_here(model, pk, using=using)
        (applied,) = slot.apply_many([Change(slot.pk, amount, key)], using=using)
    return applied


def slot_here(model: type[Any], pk: Any, *, using: str) -> Any:
    """Return the slot that this connection writes, by the account's size now. Raises ``DoesNotExist``."""
    number = number_here(size_of(model, pk, using=using, now=True), using)
    slots = model._meta.get_field("slots").related_model._base_manager.using(using)
    return slots.get(account=pk, number=number)


@compiled_by("accounts.contrib.slotted.compiled.try_add")
def try_add(model: type[Any], pk: Any, amount: Decimal, *, key: str | None = None, using: str) -> Applied | None:
    """Add a signed amount to the slot of this connection; None, with nothing written, where that does not cover it."""
    slot = slot_here(model, pk, using=using)
    try:
        (applied,) = slot.apply_many([Change(slot.pk, amount, key)], using=using)
    except InsufficientFunds:
        return None
    return cast("Applied", applied)
