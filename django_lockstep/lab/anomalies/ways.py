"""The ways in which Django developers write one transaction: what differs between the columns of the tables.

A definition (`django_lockstep.lab.anomalies.definitions`) says what is read and written; a way says how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, TypeVar

from django.db import connections, transaction
from django.db.models import F, QuerySet, Subquery
from psycopg import IsolationLevel

from django_lockstep.lab.anomalies.ground import Item, X, Y
from django_lockstep.locking import StaleVersionError, retry_on_conflict

__all__ = ["LEVELS", "STRATEGIES", "Way"]

R = TypeVar("R")

LEVELS = ("read uncommitted", "read committed", "repeatable read", "serializable")
"""The isolation levels of the SQL standard, weakest first."""

_SEARCHED = 30
_ADVISORY_KEY = 4_711_000_815
_PAUSE = 0.0001
"""Seconds between attempts, at most: the explorer decides who goes on, whatever the pause."""


class Way:
    """Transactions of plain statements, with no lock that was asked for; the strategies change single methods."""

    name: ClassVar[str] = "naive_atomic"
    text: ClassVar[str] = "transaction.atomic() alone: plain reads, plain writes."

    def __init__(self, *, using: str, level: str = "read committed") -> None:
        self.using = using
        self.level = level

    def run(self, program: Callable[[Way], R]) -> R:
        """Run the program as one transaction."""
        connection = connections[self.using]
        connection.ensure_connection()
        # As the setting OPTIONS["isolation_level"] does: part of BEGIN, and not one statement more to interleave.
        connection.connection.isolation_level = IsolationLevel[self.level.replace(" ", "_").upper()]
        with transaction.atomic(using=self.using):
            self.begin()
            return program(self)

    def begin(self) -> None:
        """Do what a strategy does before the first statement."""

    @property
    def items(self) -> QuerySet[Item]:
        """Every row, read plainly."""
        return Item._base_manager.using(self.using)

    # Reads

    def reading(self) -> QuerySet[Item]:
        """Return the rows as a transaction reads what it does not write."""
        return self.items

    def changing(self) -> QuerySet[Item]:
        """Return the rows as a transaction reads what it is about to write."""
        return self.items

    def read(self, pk: int) -> int:
        """Return one value."""
        return self.reading().get(pk=pk).value

    def search(self) -> tuple[int, ...]:
        """Return the values from 30 on: a read by a condition, not by keys."""
        found = self.reading().filter(value__gte=_SEARCHED).order_by("pk")
        return tuple(item.value for item in found)

    def both(self, changed: int) -> dict[int, Item]:
        """Return both rows, of which one may be changed."""
        mine = self.changing().get(pk=changed)
        return {changed: mine} | {item.pk: item for item in self.reading().filter(pk=X + Y - changed)}

    # Writes

    def write(self, item: Item, value: int) -> None:
        """Write a value to a row that was read."""
        self.items.filter(pk=item.pk).update(value=value)

    def put(self, pk: int, value: int) -> None:
        """Write a value whatever was there."""
        self.items.filter(pk=pk).update(value=value)

    def add(self, pk: int, amount: int) -> None:
        """Add to a value."""
        item = self.changing().get(pk=pk)
        self.write(item, item.value + amount)

    def withdraw(self, pk: int, amount: int) -> None:
        """Take the amount from one row if both rows together have it."""
        rows = self.both(pk)
        if sum(item.value for item in rows.values()) >= amount:
            self.write(rows[pk], rows[pk].value - amount)

    def insert_if_none(self, pk: int, value: int) -> None:
        """Insert a row if the search finds none."""
        if not self.search():
            self.items.create(pk=pk, value=value)


class Pessimistic(Way):
    """A lock on the row that is about to be changed."""

    name = "pessimistic"
    text = "select_for_update(no_key=True) of the row that is changed."

    def changing(self) -> QuerySet[Item]:
        """Lock it."""
        return self.items.select_for_update(no_key=True)

    def put(self, pk: int, value: int) -> None:
        """Lock, then write."""
        self.write(self.changing().get(pk=pk), value)


class PessimisticAll(Pessimistic):
    """A lock on every row that is read."""

    name = "pessimistic_all"
    text = "select_for_update(no_key=True) of every row that is read."

    def reading(self) -> QuerySet[Item]:
        """Lock what is read, too."""
        return self.changing()

    def both(self, changed: int) -> dict[int, Item]:
        """Lock both in primary-key order."""
        return {item.pk: item for item in self.changing().filter(pk__in=[X, Y]).order_by("pk")}


class Optimistic(Way):
    """A write that happens only while the row has the version that was read."""

    name = "optimistic"
    text = "UPDATE ... WHERE version = the one read, and an error where no row has it."

    def put(self, pk: int, value: int) -> None:
        """Read the version, then write."""
        self.write(self.changing().get(pk=pk), value)

    def write(self, item: Item, value: int) -> None:
        """Write where the version is as it was. Raises `StaleVersionError`."""
        unchanged = self.items.filter(pk=item.pk, version=item.version)
        if not unchanged.update(value=value, version=F("version") + 1):
            raise StaleVersionError(pk=item.pk, expected=item.version)


class ConditionalUpdate(Way):
    """One UPDATE that computes and decides in the database."""

    name = "conditional_update"
    text = "UPDATE ... SET value = value + n, with F(), and the condition in its WHERE."

    def add(self, pk: int, amount: int) -> None:
        """Let the database add."""
        self.items.filter(pk=pk).update(value=F("value") + amount)

    def withdraw(self, pk: int, amount: int) -> None:
        """Let the database decide."""
        other = self.items.filter(pk=X + Y - pk).values("value")
        covered = self.items.filter(pk=pk, value__gte=amount - Subquery(other))
        covered.update(value=F("value") - amount)


class Advisory(Way):
    """One lock that stands for everything the transaction reads and writes."""

    name = "advisory"
    text = "pg_advisory_xact_lock() of one agreed key before the first statement, by readers as well."

    def begin(self) -> None:
        """Wait for whoever has it; its snapshot is taken only afterwards."""
        with connections[self.using].cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_ADVISORY_KEY])


class Serializable(Way):
    """Plain statements at SERIALIZABLE, the whole transaction again where the server refuses it."""

    name = "serializable"
    text = "SERIALIZABLE, and the whole transaction again after a serialization failure."

    def __init__(self, *, using: str) -> None:
        super().__init__(using=using, level="serializable")

    def run(self, program: Callable[[Way], R]) -> R:
        """Run the program until it commits."""
        return retry_on_conflict(wait_max=_PAUSE)(super().run)(program)


STRATEGIES: Mapping[str, type[Way]] = MappingProxyType(
    {way.name: way for way in (Way, Pessimistic, PessimisticAll, Optimistic, ConditionalUpdate, Advisory, Serializable)}
)
"""The locking strategies, by name; all but the last at READ COMMITTED."""
