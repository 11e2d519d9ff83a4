"""What the compiled engine sends to PostgreSQL: few statements, each together with its ledger entry.

Each is what the query set API sends for the same work, compiled once for a model and a database. Where it writes, the
UPDATE stands in a common table expression and the entry's INSERT reads what it returned, so that both travel in one
round trip and happen together or not at all (PostgreSQL documentation, section 7.8.4, data-modifying WITH).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Generic, TypeVar

from django.db import connections, models

from accounts.amounts import TOO_LARGE
from accounts.engine.compiled.statements import GIVEN, Sign, Statements, Wait
from accounts.engine.obstacles import has_listeners, obstacles, saves_are_heard
from django_lockstep.locking.compiled import Compiled, fetch, write
from django_lockstep.locking.transactions import commits_each_statement
from django_lockstep.locking.writes import auto_now_values

__all__ = ["Ledger", "ledger_alone", "ledger_of", "queue_key"]

A = TypeVar("A", bound=models.Model)


class Ledger(Generic[A]):
    """The statements for one account model on one database; `ledger_of` returns it where they may be used.

    All are right at READ COMMITTED, because an UPDATE that waited for a row looks at the row's newest version
    (PostgreSQL documentation, section 13.2.1); above, such a wait ends with a serialization failure. They raise
    Django's database errors.
    """

    def __init__(self, model: type[A], using: str) -> None:
        self.model = model
        self.using = using
        self.statements = Statements(model, using)
        self._attnames = [field.attname for field in model._meta.concrete_fields]
        self._converters = _converters(model, using)

    def read(self, pk: object) -> A | None:
        """Return the account as it is now; None if there is none."""
        return self._account(self.statements.read, {"pk": pk})

    def lock(self, pk: object, *, wait: Wait = "wait") -> A | None:
        """Lock the row ``FOR NO KEY UPDATE`` until the transaction ends; return the account, None if there is none."""
        return self._account(self.statements.lock[wait], {"pk": pk, "queue": queue_key(self.model, pk)})

    def write(
        self, account: Any, balance: Decimal, *, seen: int, entry: Mapping[str, Any], compare: bool = True
    ) -> dict[str, Any]:
        """Write the balance and the next version, with an entry, where the account still has the version ``seen``.

        Return what was written, by attribute; empty if the row has another version, or is gone. ``entry`` is the
        amount, and what else the entry shall have. Waits for whoever has the row. ``compare=False`` writes whatever
        version it has: for those who locked the row.
        """
        changes = {**auto_now_values(self.model), "balance": balance, self.statements.version: seen + 1}
        values = {**self._blank(), **entry, **changes, "pk": account.pk, "seen": seen, "next": seen + 1}
        changes["entry_count"] = account.entry_count + 1
        return changes if write(connections[self.using], self.statements.write[compare], values) else {}

    def add(self, pk: object, amount: Decimal, *, wait: Wait = "wait") -> A | None:
        """Add a signed amount, with its entry, where the overdraft limit and the size of a balance allow it.

        Return the account as written; None where there is no such account, or the new balance is not allowed.

        With ``wait="queue"`` a transaction-level advisory lock on the account is taken before its row. Of those who
        wait for a row, all wake with each commit and race for it; an advisory lock's queue is first come, first served.
        Only for a statement that begins its transaction: who has the row already and then asked for the queue would
        wait for those who wait for the row.
        """
        return self._account(self.statements.add[_sign(amount), wait], self._sum(pk, amount))

    def lock_and_add(self, pk: object, amount: Decimal, *, wait: Wait = "queue") -> A | None:
        """Lock the row ``FOR NO KEY UPDATE``, then do as `add`, in one statement."""
        return self._account(self.statements.lock_and_add[_sign(amount), wait], self._sum(pk, amount))

    def _sum(self, pk: object, amount: Decimal) -> dict[str, Any]:
        return {**self.values(amount), "pk": pk, "queue": queue_key(self.model, pk)}

    def values(self, amount: Decimal) -> dict[str, Any]:
        """Return what belongs into the places of `Statements.add`, but for those that say which row."""
        limits = {"least": -amount, "bound": TOO_LARGE - amount}
        return {**self._blank(), **limits, **auto_now_values(self.model), "amount": amount}

    def _blank(self) -> dict[str, Any]:
        """Return what an entry has that is given nothing."""
        if not self.statements.extras:
            return _NOTHING
        new = self.statements.entry()
        return {**_NOTHING, **{field.attname: field.pre_save(new, add=True) for field in self.statements.extras}}

    def _account(self, compiled: Compiled, values: Mapping[str, Any]) -> A | None:
        rows = fetch(connections[self.using], compiled, values)
        return self.instance(rows[0]) if rows else None

    def instance(self, row: Sequence[Any]) -> A:
        """Return the account of a row that one of the statements returned."""
        if self._converters:
            row = list(row)
            for index, column, convert in self._converters:
                row[index] = convert(row[index], column, connections[self.using])
        return self.model.from_db(self.using, self._attnames, row)


def _converters(model: type[models.Model], using: str) -> list[tuple[int, Any, Any]]:
    """Return what makes of a driver's value the field's, where anything does: its place, its column, the function."""
    connection: Any = connections[using]
    columns: Any = [field.get_col(model._meta.db_table) for field in model._meta.concrete_fields]
    return [
        (index, column, convert)
        for index, column in enumerate(columns)
        for convert in connection.ops.get_db_converters(column) + column.get_db_converters(connection)
    ]


def _sign(amount: Decimal) -> Sign:
    return "minus" if amount < 0 else "plus"


_NOTHING: dict[str, Any] = dict.fromkeys(GIVEN)


def queue_key(model: type[models.Model], pk: object) -> int:
    """Return the key of the advisory lock that those queue at who write the row: 64 bits of a hash of table and key."""
    name = f"accounts.engine:{model._meta.db_table}:{model._meta.pk.to_python(pk)}"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)


def ledger_of(model: type[A], using: str) -> Ledger[A] | None:
    """Return the statements for this model's accounts there; None where only the methods will do.

    `accounts.engine.obstacles` says when that is.
    """
    ledger = _ledger(model, using)
    heard = ledger is None or saves_are_heard(model) or has_listeners(ledger.statements.entry)
    return None if heard else ledger


def ledger_alone(model: type[A], using: str) -> Ledger[A] | None:
    """Return the same if each statement will be a transaction of its own; in an open one the steps are the caller's."""
    return ledger_of(model, using) if commits_each_statement(connections[using]) else None


@functools.cache  # as many as the project has models and databases
def _ledger(model: type[A], using: str) -> Ledger[A] | None:
    return None if obstacles(model, using) else Ledger(model, using)
