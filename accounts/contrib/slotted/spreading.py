"""Chooses the slot that a connection writes, and adds to it."""

from __future__ import annotations

import threading
import time
from decimal import ROUND_DOWN, Decimal
from typing import Any, cast

from django.db import connections

from accounts.amounts import PLACES
from accounts.bounded_cache import BoundedCache
from accounts.engine import compiled_by
from accounts.engine.batches import AppliedChange, BalanceChange
from accounts.errors import InsufficientFunds

__all__ = ["SIZE_CACHE_SECONDS", "add", "size_of", "slot_for", "slot_number", "split_evenly", "try_add"]

SIZE_CACHE_SECONDS = 5.0
"""Seconds for which a process caches the size of an account."""
_CENT = Decimal(1).scaleb(-PLACES)
_sizes: BoundedCache[tuple[str, type[Any], Any], tuple[float, int]] = BoundedCache()
"""The time when an account's size was read, and the size."""


def split_evenly(amount: Decimal, count: int) -> list[Decimal]:
    """Split the amount into ``count`` parts that differ by at most a cent, the larger ones first.

    Monotonic: if one amount is nearer to zero than another, so is each of its parts. Raises ``ValueError`` unless
    ``count`` is a positive integer.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"size must be a positive integer, not {count!r}")
    least = (amount / count).quantize(_CENT, rounding=ROUND_DOWN)
    cent = _CENT.copy_sign(amount)
    larger = int((amount - least * count) / cent)
    return [least + cent] * larger + [least] * (count - larger)


def size_of(model: type[Any], pk: object, *, using: str, now: bool = False) -> int:
    """Return how many slots of the account take deposits: the current size if ``now``, otherwise a cached one.

    A stale size does no harm: the sum includes every slot, also unneeded ones. Raises ``DoesNotExist``.
    """
    key, at = (using, model, pk), time.monotonic()
    read, size = _sizes.get(key, (-SIZE_CACHE_SECONDS, 0))
    # Cached, because otherwise each deposit would read the account's row as well.
    if now or at - read >= SIZE_CACHE_SECONDS:
        size = model._base_manager.using(using).values_list("size", flat=True).get(pk=pk)
        _sizes[key] = at, size
    return size


def slot_number(size: int, using: str) -> int:
    """Return the number of the slot that this connection writes: process ids of sessions are spread evenly."""
    connection = connections[using]
    connection.ensure_connection()
    # The server process's id: the same slot for the life of a connection, different ones for concurrent sessions.
    session = getattr(getattr(connection.connection, "info", None), "backend_pid", None)
    return int(session or threading.get_native_id()) % size


def add(model: type[Any], pk: object, amount: Decimal, *, key: str | None = None, using: str) -> AppliedChange:
    """Add a signed amount to the slot of this connection; return the result."""
    applied = try_add(model, pk, amount, key=key, using=using)
    if applied is None:
        # Once more by the current size; if that fails too, this raises the reason.
        slot = slot_for(model, pk, using=using)
        (applied,) = slot.apply_many([BalanceChange(slot.pk, amount, key)], using=using)
    return applied


def slot_for(model: type[Any], pk: object, *, using: str) -> Any:
    """Return the slot that this connection writes, by the account's current size. Raises ``DoesNotExist``."""
    number = slot_number(size_of(model, pk, using=using, now=True), using)
    slots = model._meta.get_field("slots").related_model._base_manager.using(using)
    return slots.get(account=pk, number=number)


@compiled_by("accounts.contrib.slotted.compiled.try_add")
def try_add(
    model: type[Any], pk: object, amount: Decimal, *, key: str | None = None, using: str
) -> AppliedChange | None:
    """Add a signed amount to the slot of this connection; return None, with nothing written, if it is not covered."""
    slot = slot_for(model, pk, using=using)
    try:
        (applied,) = slot.apply_many([BalanceChange(slot.pk, amount, key)], using=using)
    except InsufficientFunds:
        return None
    return cast("AppliedChange", applied)
