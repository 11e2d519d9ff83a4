"""Access patterns: how Django developers write one transaction. They are the columns of the tables.

A definition (`django_lockstep.lab.anomalies.definitions`) says what is read and written; an access pattern says how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, TypeVar

from django.db import connections, transaction
from django.db.models import F, QuerySet, Subquery
from psycopg import IsolationLevel

from django_lockstep.lab.anomalies.scratch_table import Item, X, Y
from django_lockstep.locking import StaleVersionError, retry_on_conflict

__all__ = ["LEVELS", "STRATEGIES", "AccessPattern"]

R = TypeVar("R")

LEVELS = ("read uncommitted", "read committed", "repeatable read", "serializable")
"""The isolation levels of the SQL standard, weakest first."""

_SEARCHED = 30
_ADVISORY_KEY = 4_711_000_815
_PAUSE = 0.0001
"""Seconds between attempts, at most: the explorer decides which actor goes on, whatever the pause."""


class AccessPattern:
    """Transactions of plain statements, without explicit locks; the strategies override single methods."""

    name: ClassVar[str] = "naive_atomic"
    text: ClassVar[str] = "transaction.atomic() alone: plain reads, plain writes."

    def __init__(self, *, using: str, level: str = "read committed") -> None:
        self.using = using
        self.level = level

    def run(self, program: Callable[[AccessPattern], R]) -> R:
        """Run the program as one transaction."""
        connection = connections[self.using]
        connection.ensure_connection()
        # As OPTIONS["isolation_level"] does it: as part of BEGIN, not as one more statement to interleave.
        connection.connection.isolation_level = IsolationLevel[self.level.replace(" ", "_").upper()]
        with transaction.atomic(using=self.using):
            self.begin()
            return program(self)

    def begin(self) -> None:
        """Run before the first statement of the transaction; strategies override it."""

    @property
    def items(self) -> QuerySet[Item]:
        """All rows, without a lock."""
        return Item._base_manager.using(self.using)

    # Reads

    def rows_to_read(self) -> QuerySet[Item]:
        """Return the rows for a read of what the transaction does not write."""
        return self.items

    def rows_to_change(self) -> QuerySet[Item]:
        """Return the rows for a read of what the transaction is about to write."""
        return self.items

    def read(self, pk: int) -> int:
        return self.rows_to_read().get(pk=pk).value

    def search(self) -> tuple[int, ...]:
        """Return the values from 30 upwards: a read by a condition, not by keys."""
        found = self.rows_to_read().filter(value__gte=_SEARCHED).order_by("pk")
        return tuple(item.value for item in found)

    def read_both(self, changed: int) -> dict[int, Item]:
        """Return x and y; the row ``changed`` may be written afterwards."""
        mine = self.rows_to_change().get(pk=changed)
        return {changed: mine} | {item.pk: item for item in self.rows_to_read().filter(pk=X + Y - changed)}

    # Writes

    def write(self, item: Item, value: int) -> None:
        """Write a value to a row that this transaction has read."""
        self.items.filter(pk=item.pk).update(value=value)

    def overwrite(self, pk: int, value: int) -> None:
        """Write a value without using the old one."""
        self.items.filter(pk=pk).update(value=value)

    def add(self, pk: int, amount: int) -> None:
        item = self.rows_to_change().get(pk=pk)
        self.write(item, item.value + amount)

    def withdraw(self, pk: int, amount: int) -> None:
        """Subtract the amount from one row if x + y is at least the amount."""
        rows = self.read_both(pk)
        if sum(item.value for item in rows.values()) >= amount:
            self.write(rows[pk], rows[pk].value - amount)

    def insert_if_none(self, pk: int, value: int) -> None:
        # There is no row yet that could be locked or have a version: only a lock on something else, or SERIALIZABLE,
        # helps.
        if not self.search():
            self.items.create(pk=pk, value=value)


class PessimisticPattern(AccessPattern):
    """A lock on the row that is about to be changed."""

    name = "pessimistic"
    text = "select_for_update(no_key=True) of the row that is changed."

    def rows_to_change(self) -> QuerySet[Item]:
        return self.items.select_for_update(no_key=True)

    def overwrite(self, pk: int, value: int) -> None:
        # The old value is not needed, but the lock is, and before the write.
        self.write(self.rows_to_change().get(pk=pk), value)


class PessimisticAllPattern(PessimisticPattern):
    """A lock on every row that is read."""

    name = "pessimistic_all"
    text = "select_for_update(no_key=True) of every row that is read."

    def rows_to_read(self) -> QuerySet[Item]:
        return self.rows_to_change()

    def read_both(self, changed: int) -> dict[int, Item]:
        """Lock both rows in one statement, in the order of their keys, so that no deadlock is possible."""
        return {item.pk: item for item in self.rows_to_change().filter(pk__in=[X, Y]).order_by("pk")}


class OptimisticPattern(AccessPattern):
    """A write that happens only while the row has the version that was read."""

    name = "optimistic"
    text = "UPDATE ... WHERE version = the one read, and an error if no row has it."

    def overwrite(self, pk: int, value: int) -> None:
        # The old value is not needed, but its version is.
        self.write(self.rows_to_change().get(pk=pk), value)

    def write(self, item: Item, value: int) -> None:
        """Write if the version is unchanged. Raises `StaleVersionError` otherwise."""
        unchanged = self.items.filter(pk=item.pk, version=item.version)
        if not unchanged.update(value=value, version=F("version") + 1):
            raise StaleVersionError(pk=item.pk, expected=item.version)


class ConditionalUpdatePattern(AccessPattern):
    """One UPDATE that computes and decides in the database."""

    name = "conditional_update"
    text = "UPDATE ... SET value = value + n, with F(), and the condition in its WHERE."

    def add(self, pk: int, amount: int) -> None:
        # After a wait the server computes with the newest version of the row.
        self.items.filter(pk=pk).update(value=F("value") + amount)

    def withdraw(self, pk: int, amount: int) -> None:
        # The condition is in the UPDATE, but its subquery on the other row is not locked: G2-item stays possible.
        other = self.items.filter(pk=X + Y - pk).values("value")
        covered = self.items.filter(pk=pk, value__gte=amount - Subquery(other))
        covered.update(value=F("value") - amount)


class AdvisoryPattern(AccessPattern):
    """One lock that stands for everything the transaction reads and writes."""

    name = "advisory"
    text = "pg_advisory_xact_lock() of one agreed key before the first statement, by readers too."

    def begin(self) -> None:
        """Take the lock, exclusively: later statements see what its last holder has committed."""
        with connections[self.using].cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_ADVISORY_KEY])


class SerializablePattern(AccessPattern):
    """Plain statements at SERIALIZABLE; the whole transaction is repeated if the server refuses it."""

    name = "serializable"
    text = "SERIALIZABLE, with the whole transaction repeated after a serialization failure."

    def __init__(self, *, using: str) -> None:
        super().__init__(using=using, level="serializable")

    def run(self, program: Callable[[AccessPattern], R]) -> R:
        # The whole transaction, reads included: what it has read is what made it fail (PostgreSQL documentation, 13.5).
        return retry_on_conflict(wait_max=_PAUSE)(super().run)(program)


STRATEGIES: Mapping[str, type[AccessPattern]] = MappingProxyType(
    {
        pattern.name: pattern
        for pattern in (
            AccessPattern,
            PessimisticPattern,
            PessimisticAllPattern,
            OptimisticPattern,
            ConditionalUpdatePattern,
            AdvisoryPattern,
            SerializablePattern,
        )
    }
)
"""The locking strategies, by name; all but the last at READ COMMITTED."""
