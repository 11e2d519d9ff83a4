"""The compiled counterpart of adding to a slot: one statement, which finds the slot by account and number."""

from __future__ import annotations

import functools
from decimal import Decimal
from typing import Any

from django.db import connections

from accounts.contrib.slotted import spreading
from accounts.engine.changes import Applied
from accounts.engine.compiled.ledger import Ledger, ledger_of
from accounts.engine.compiled.statements import SIGNS, Sign, Statements
from django_lockstep.locking.compiled import Compiled, fetch, parameter

__all__ = ["try_add"]


def try_add(model: type[Any], pk: Any, amount: Decimal, *, key: str | None = None, using: str) -> Any:
    """Do as `accounts.contrib.slotted.spreading.try_add`; by a size that may be a few seconds old."""
    ledger = ledger_of(model._meta.get_field("slots").related_model, using)
    if ledger is None:
        return NotImplemented
    number = spreading.number_here(spreading.size_of(model, pk, using=using), using)
    place = {"account": model._meta.pk.to_python(pk), "number": number}
    values = {**ledger.values(amount), **place, "idempotency_key": key}
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
