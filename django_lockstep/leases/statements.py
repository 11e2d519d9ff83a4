"""Lease operations on the calling thread's connection: outside transactions, with translated errors, with a queue.

Of polling with jitter, LISTEN/NOTIFY and a queue of advisory locks the queue had by far the shortest 99th percentile:
of eight processes that held a lease for 20 ms each, one in a hundred waited 0.17 s, against 5 s and 1.2 s,
at the same rate (``benchmarks/lease_waits.py``). The server keeps the order; only the first in the queue polls.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from django.apps import apps
from django.db import InterfaceError, OperationalError, connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from django_lockstep.errors import sqlstate_of, translated
from django_lockstep.leases.errors import LeaseTimedOut
from django_lockstep.leases.portable import PortableStatements
from django_lockstep.leases.postgresql import PostgresStatements
from django_lockstep.locking.transactions import in_own_atomic
from django_lockstep.stores.terms import Claim, Grant, Holder
from django_lockstep.stores.waiting import SHORTEST_PAUSE, lease_waits, pauses, timeout_of

__all__ = [
    "LeaseStatements",
    "acquire",
    "attempt",
    "is_lost",
    "lease_model",
    "on_own_connection",
    "statements_of",
]

R = TypeVar("R")

logger = logging.getLogger("lockstep.leases")

SLICE = 0.005
"""Seconds for which newcomers may still overtake the first in the queue; then it claims its turn.

Reacquiring a lease that was just released costs a tenth of handing it over, because a sleeping process wakes up slowly.
A strict order for leases held for less time than that would form a convoy.
"""
TURN = 30.0
"""Seconds after which a waiter queues again: a waiting statement keeps its snapshot, which holds back VACUUM."""

LeaseAnswer = Grant | Holder | None


class LeaseStatements(Protocol):
    """The lease operations on one database, on the calling thread's connection."""

    has_queue: bool

    def attempt(self, claim: Claim, *, timeout: float, yields_to_queue: bool = False) -> Grant | Holder | None:
        """Take a free lease, or return its holder."""

    def queue(self, key: str, *, timeout: float, after: float) -> None:
        """Wait in the open transaction until this session is first in the queue for the lease."""

    def claim_turn(self, key: str, *, timeout: float) -> None:
        """Stop claims that yield to the queue from taking the lease before this transaction ends."""

    def holder(self, key: str, *, timeout: float) -> Holder | None:
        """Return the holder, None for a free lease."""

    def refresh(self, key: str, token: int, *, ttl: float, timeout: float) -> bool:
        """Extend the lease; False if the token no longer holds it."""

    def note(self, key: str, token: int, *, data: str, timeout: float) -> bool:
        """Replace the lease's data; False if the token no longer holds the lease."""

    def release(self, key: str, token: int, *, at_least: float, timeout: float) -> bool:
        """Release the lease; False if the token no longer holds it."""

    def guard(self, key: str, token: int, *, within: float | None) -> bool:
        """Lock the lease against a takeover, ``within`` seconds (None: its ttl); False for a token that lost it."""


def statements_of(using: str) -> LeaseStatements:
    """Return the lease operations for this database."""
    return _statements(connections[using])


def _statements(connection: BaseDatabaseWrapper) -> LeaseStatements:
    model = lease_model()
    if connection.vendor == "postgresql":
        return PostgresStatements(connection, model._meta.db_table)
    return PortableStatements(connection.alias, model)


@functools.cache
def lease_model() -> type[models.Model]:
    """Return the model, which cannot be imported before the apps are loaded; looked up once."""
    return apps.get_model("lockstep_leases", "Lease")


def on_own_connection(using: str, operation: Callable[[LeaseStatements], R]) -> R:
    """Run an operation in autocommit on the calling thread's connection, and once more if that connection was lost.

    Operations may run twice: a refresh keeps the token, and a holder whose acquire was not answered holds the lease
    under a name of its own. A connection that is lost the second time is left closed, see `is_lost`.

    Raises ``TransactionManagementError`` in an open transaction, before any SQL (a ``TestCase``'s own does not count);
    `LeaseTimedOut`; the driver's errors, translated.
    """
    _refuse_inside_transaction(connections[using])
    try:
        return _run(using, operation)
    except (OperationalError, InterfaceError):
        if not is_lost(using):
            raise
    return _run(using, operation)


def is_lost(using: str) -> bool:
    """Whether the operation that just failed had lost its connection, or had got none."""
    return connections[using].connection is None


def _run(using: str, operation: Callable[[LeaseStatements], R]) -> R:
    connection, session = connections[using], None
    try:
        connection.ensure_connection()
        session = connection.connection
        return operation(_statements(connection))
    except (OperationalError, InterfaceError) as error:
        # The end of an atomic() that lost its connection opens another one, which is usable: compare them first.
        is_same = connection.connection is not None and connection.connection is session
        # Inside a TestCase's transaction the connection must stay open; the test still owns it.
        if not connection.in_atomic_block and not (is_same and connection.is_usable()):
            # Closed, so that the next attempt gets a new connection instead of a broken one.
            connection.close()
        named = _named(error)
        if named is error:
            raise
        # The driver's error stays as the cause: it has the SQLSTATE and the server's text.
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
            f"{connection.alias!r}: others would not see the lease before COMMIT, and a rollback would undo it. Move "
            "it outside of atomic() (and of ATOMIC_REQUESTS: see non_atomic_requests); only guard() belongs inside."
        )


def acquire(using: str, claim: Claim, *, wait: float) -> LeaseAnswer:
    """Return the grant, or the holder after ``wait`` seconds (None: others are queueing for it).

    On PostgreSQL waiters get the lease in the order in which they asked, and no newcomer gets it once the first of them
    has waited for `SLICE`: behind ``n`` others the wait is at most ``n + 1`` times that plus the time for which the
    lease is held, as long as no wait exceeds `TURN`. A waiter that loses its connection queues again on another one
    until the wait is over, also across a restart of the server. Raises the error of the last attempt to reach the
    database.
    """
    # The process's clock: it bounds this process's wait. What has expired, only the database's clock decides.
    deadline = time.monotonic() + (wait if lease_waits() else 0.0)
    answer = _retry_until(using, lambda ours: _attempt(ours, claim, yields_to_queue=wait > 0), until=deadline)
    while not isinstance(answer, Grant) and (left := deadline - time.monotonic()) > 0:
        turn_ends = time.monotonic() + min(left, TURN)
        answer = _retry_until(using, lambda ours: _turn(ours, using, claim, until=turn_ends), until=deadline)  # noqa: B023
    return answer


def _retry_until(using: str, operation: Callable[[LeaseStatements], LeaseAnswer], *, until: float) -> LeaseAnswer:
    """Run the operation, and retry it with pauses while the database cannot be reached, the last time at ``until``."""
    for number, pause in enumerate(pauses(until)):
        try:
            return on_own_connection(using, operation)
        except (OperationalError, InterfaceError) as error:
            if not is_lost(using):
                raise
            if not number:
                logger.warning("A wait for a lease goes on, but database %r cannot be reached: %s", using, error)
        time.sleep(pause)
    return on_own_connection(using, operation)


def attempt(using: str, claim: Claim, *, yields_to_queue: bool = False) -> LeaseAnswer:
    """Try once; ``yields_to_queue`` leaves the lease to a waiter that has claimed its turn."""
    return on_own_connection(using, lambda statements: _attempt(statements, claim, yields_to_queue=yields_to_queue))


def _attempt(statements: LeaseStatements, claim: Claim, *, yields_to_queue: bool) -> LeaseAnswer:
    asked = time.monotonic()
    answer = statements.attempt(claim, timeout=timeout_of(claim.ttl), yields_to_queue=yields_to_queue)
    if claim.is_unique and isinstance(answer, Holder) and answer.owner == claim.owner and not answer.released:
        # An earlier attempt succeeded, and its answer was lost with the connection.
        begun = asked + answer.remaining - claim.ttl
        return Grant(token=answer.token, since=answer.since, asked=begun, data=json.dumps(answer.data))
    return answer


def _turn(statements: LeaseStatements, using: str, claim: Claim, *, until: float) -> LeaseAnswer:
    """Queue for the lease and take it as soon as it is free; return its holder where it stays taken."""
    # In the transaction of a TestCase an advisory queue lock would outlive the wait, so the caller polls.
    if not statements.has_queue or connections[using].in_atomic_block:
        return _poll(statements, claim, until=until)
    try:
        with transaction.atomic(using=using):
            statements.queue(claim.key, timeout=max(until - time.monotonic(), 0.001), after=timeout_of(claim.ttl))
            return _poll(statements, claim, until=until, claims_after=SLICE)
    except OperationalError as error:
        # 57014: the time in the queue is over (statement_timeout), which is an answer and not an error.
        if sqlstate_of(error) != "57014":
            raise
    return _attempt(statements, claim, yields_to_queue=True)


def _poll(statements: LeaseStatements, claim: Claim, *, until: float, claims_after: float = math.inf) -> LeaseAnswer:
    begun = time.monotonic()
    answer = _attempt(statements, claim, yields_to_queue=False)
    for pause in pauses(until):
        if isinstance(answer, Grant):
            break
        expires_in = answer.remaining + SHORTEST_PAUSE if isinstance(answer, Holder) else pause
        # No row lock is held here, only the advisory locks of the queue. Wakes right after a known expiry.
        time.sleep(min(pause, expires_in))
        if time.monotonic() - begun > claims_after:
            # The shared turn locks of newcomers last for one statement, so this exclusive lock waits only briefly.
            statements.claim_turn(claim.key, timeout=timeout_of(claim.ttl))
            claims_after = math.inf
        answer = _attempt(statements, claim, yields_to_queue=False)
    return answer
