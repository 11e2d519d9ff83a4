"""The edge between leases and the database: whose connection, outside of which transactions, with which errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol, TypeVar

from django.apps import apps
from django.db import InterfaceError, OperationalError, connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from django_lockstep.errors import sqlstate_of, translated
from django_lockstep.leases.errors import LeaseTimedOut
from django_lockstep.leases.portable import PortableStore
from django_lockstep.leases.postgresql import PostgresStore
from django_lockstep.leases.terms import Claim, Grant, Holder
from django_lockstep.locking.transactions import in_own_atomic

__all__ = ["Store", "is_lost", "lease_model", "on_own_connection", "store_of", "timeout_of"]

R = TypeVar("R")


class Store(Protocol):
    """The verbs of leases on one database, on the connection of the calling thread."""

    has_queue: bool

    def attempt(self, claim: Claim, *, timeout: float, polite: bool = False) -> Grant | Holder | None:
        """Take the lease if nobody holds it, otherwise tell who does."""

    def queue(self, key: str, *, timeout: float, after: float) -> None:
        """Wait in a transaction that this begins until it is first in the queue for the lease."""

    def insist(self, key: str, *, timeout: float) -> None:
        """Keep everybody polite from taking the lease before the transaction ends that is first in the queue."""

    def holder(self, key: str, *, timeout: float) -> Holder | None:
        """Return who holds the lease."""

    def refresh(self, key: str, token: int, *, ttl: float, timeout: float) -> bool:
        """Extend the lease; False if the token no longer holds it."""

    def note(self, key: str, token: int, *, data: str, timeout: float) -> bool:
        """Replace what the holder noted; False if the token no longer holds the lease."""

    def release(self, key: str, token: int, *, at_least: float, timeout: float) -> bool:
        """Give the lease back; False if the token no longer holds it."""

    def guard(self, key: str, token: int, *, within: float | None) -> bool:
        """Lock the lease against a takeover, for so many seconds (None: its ttl); False if the token does not hold."""


def store_of(using: str) -> Store:
    """Return the verbs on this database."""
    return _store(connections[using])


def _store(connection: BaseDatabaseWrapper) -> Store:
    model = lease_model()
    if connection.vendor == "postgresql":
        return PostgresStore(connection, model._meta.db_table)
    return PortableStore(connection.alias, model)


@functools.cache
def lease_model() -> type[models.Model]:
    """Return the model, which cannot be imported before the apps are loaded; looked up once."""
    return apps.get_model("lockstep_leases", "Lease")


def timeout_of(ttl: float) -> float:
    """Return how many seconds a statement of a lease may take: half of a heartbeat's interval, at most ten."""
    return min(ttl / 6, 10.0)


def on_own_connection(using: str, verb: Callable[[Store], R]) -> R:
    """Run the verb in autocommit on the calling thread's connection, and once more where that turns out to be lost.

    Verbs may be run twice: a token is the same after a refresh, and who acquired and was not told holds the lease under
    a name that is nobody else's. A connection that is lost the second time is left closed, see `is_lost`.

    Raises ``TransactionManagementError`` in an open transaction, before any SQL (a ``TestCase``'s own does not count);
    `LeaseTimedOut`; the driver's errors, translated.
    """
    _refuse_inside_transaction(connections[using])
    try:
        return _run(using, verb)
    except (OperationalError, InterfaceError):
        if not is_lost(using):
            raise
    return _run(using, verb)


def is_lost(using: str) -> bool:
    """Whether the verb that has just failed has failed because it lost its connection, or got none."""
    return connections[using].connection is None


def _run(using: str, verb: Callable[[Store], R]) -> R:
    connection, session = connections[using], None
    try:
        connection.ensure_connection()
        session = connection.connection
        return verb(_store(connection))
    except (OperationalError, InterfaceError) as error:
        # The end of an atomic() that has lost its connection opens another one, which is usable: compare first.
        is_same = connection.connection is not None and connection.connection is session
        if not connection.in_atomic_block and not (is_same and connection.is_usable()):
            connection.close()
        named = _named(error)
        if named is error:
            raise
        raise named from error


def _named(error: Exception) -> Exception:
    sqlstate = sqlstate_of(error)
    if sqlstate in ("57014", "55P03"):  # the statement's time limit, or the session's own for locks
        return LeaseTimedOut(sqlstate=sqlstate)
    return translated(error)


def _refuse_inside_transaction(connection: BaseDatabaseWrapper) -> None:
    manual = connection.connection is not None and not connection.in_atomic_block and not connection.autocommit
    if manual or in_own_atomic(connection):
        raise TransactionManagementError(
            f"A lease is acquired, refreshed and released outside of transactions, but one is open on database "
            f"{connection.alias!r}: nobody would see the lease before COMMIT, and a rollback would take it back. Move "
            "it outside of atomic() (and of ATOMIC_REQUESTS: see non_atomic_requests); inside belongs the guard()."
        )
