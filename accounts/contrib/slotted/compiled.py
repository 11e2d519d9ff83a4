"""The compiled counterpart of `spreading.try_add`: one statement, which finds the slot by account and number."""

from __future__ import annotations

import functools
from decimal import Decimal
from typing import Any

from django.db import connections

from accounts.contrib.slotted import spreading
from accounts.engine.batches import AppliedChange
from accounts.engine.compiled.runner import StatementRunner, runner_for
from accounts.engine.compiled.statements import SIGNS, Sign, Statements
from django_lockstep.locking.compiled import Compiled, fetch, parameter

__all__ = ["try_add"]


def try_add(model: type[Any], pk: object, amount: Decimal, *, key: str | None = None, using: str) -> Any:
    """Add to the slot in one statement; the account's size may be a few seconds old, which only changes the slot."""
    runner = runner_for(model._meta.get_field("slots").related_model, using)
    if runner is None:
        return NotImplemented
    # By number, not by key: finding the slot's key first would be one more round trip.
    number = spreading.slot_number(spreading.size_of(model, pk, using=using), using)
    place = {"account": model._meta.pk.to_python(pk), "number": number}
    values = {**runner.values(amount), **place, "idempotency_key": key}
    rows = fetch(connections[using], _statements(runner).book["minus" if amount < 0 else "plus"], values)
    if not rows:
        return None
    entry, slot, balance, version = rows[0]
    return AppliedChange(slot, amount, balance, version, entry)


class _SlotStatements(Statements):
    """The statements for slots, which are found by account and number."""

    @functools.cached_property
    def book(self) -> dict[Sign, Compiled]:
        """UPDATE the balance by an amount and INSERT the entry, returning the entry."""
        place = {name: parameter(self.model, name) for name in ("account", "number")}
        return {sign: self._book_statement(self.rows.filter(**place), sign=sign) for sign in SIGNS}


@functools.cache
def _statements(runner: StatementRunner[Any]) -> _SlotStatements:
    return _SlotStatements(runner.model, runner.using)
