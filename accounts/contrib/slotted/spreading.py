"""Which slot a connection writes, and the one statement that does it."""

from __future__ import annotations

import functools
import threading
import time
from decimal import ROUND_DOWN, Decimal
from typing import Any

from django.db import connections

from accounts.amounts import PLACES
from accounts.bounded import Bounded
from accounts.changes import Applied
from accounts.statements import Ledger, Statements, ledger_of
from accounts.statements.compiling import SIGNS, Sign
from django_lockstep.locking.compiled import Compiled, fetch, parameter

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


def add(model: type[Any], pk: Any, amount: Decimal, *, using: str) -> Applied:
    """Add a signed amount to the slot of this connection; return what that came to, of the slot."""
    applied = try_add(model, pk, amount, using=using)
    if applied is None:
        # In steps, where there is no fast way, and where it did nothing: here it is said why.
        slot = slot_here(model, pk, using=using)
        (applied,) = slot.apply_many([(slot.pk, amount)], using=using)
    return applied


def slot_here(model: type[Any], pk: Any, *, using: str) -> Any:
    """Return the slot that this connection writes, by the account's size now. Raises ``DoesNotExist``."""
    number = number_here(size_of(model, pk, using=using, now=True), using)
    slots = model._meta.get_field("slots").related_model._base_manager.using(using)
    return slots.get(account=pk, number=number)


def try_add(model: type[Any], pk: Any, amount: Decimal, *, using: str) -> Applied | None:
    """Do as `add` if the one statement can do it; None, with nothing written, where it cannot."""
    ledger = ledger_of(model._meta.get_field("slots").related_model, using)
    if ledger is None:
        return None
    number = number_here(size_of(model, pk, using=using), using)
    values = {**ledger.values(amount), "account": model._meta.pk.to_python(pk), "number": number}
    rows = fetch(connections[using], _statements(ledger).book["minus" if amount < 0 else "plus"], values)
    if not rows:
        return None
    entry, slot, balance, version = rows[0]
    return Applied(slot, amount, balance, version, entry)


class _SlotStatements(Statements):
    """The statements for slots, which are found by account and number."""

    @functools.cached_property
    def book(self) -> dict[Sign, Compiled]:
        """UPDATE the balance by an amount and INSERT the entry, answering with what it says."""
        place = {name: parameter(self.model, name) for name in ("account", "number")}
        return {sign: self._book(self.rows.filter(**place), sign=sign) for sign in SIGNS}


@functools.cache
def _statements(ledger: Ledger[Any]) -> _SlotStatements:
    return _SlotStatements(ledger.model, ledger.using)
