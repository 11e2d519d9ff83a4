"""The store on a Django database: operations on the calling thread's connection, outside of transactions, with a queue.

Of polling with jitter, LISTEN/NOTIFY and a queue of advisory locks the queue had by far the shortest 99th percentile:
of eight processes that held a lease for 20 ms each, one in a hundred waited 0.17 s, against 5 s and 1.2 s,
at the same rate. The server keeps the order; only the first in the queue polls.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, InterfaceError, OperationalError, ProgrammingError, connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from django_lockstep.errors import sqlstate_of, translated_errors
from django_lockstep.leases.errors import LeaseTimedOut
from django_lockstep.leases.lines import lines
from django_lockstep.locking.durations import Duration
from django_lockstep.locking.transactions import in_own_atomic
from django_lockstep.stores.protocol import SHORTEST_PAUSE, LeaseStore, lease_waits, pauses
from django_lockstep.stores.terms import Claim, Grant, Holder, UniqueOwner, valid_key

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="DatabaseLeases")

logger = logging.getLogger("lockstep.leases")

SLICE = 0.005
"""Seconds for which newcomers may still overtake the first in the queue; then it claims its turn.

Reacquiring a lease that was just released costs a tenth of handing it over, because a sleeping process wakes up slowly.
A strict order for leases held for less time than that would form a convoy.
"""
TURN = 30.0
"""Seconds after which a waiter queues again: a waiting statement keeps its snapshot, which holds back VACUUM."""


@functools.cache
def lease_model() -> type[models.Model]:
    """Return the model, which cannot be imported before the apps are loaded; looked up once."""
    if not apps.is_installed("django_lockstep.leases"):
        raise ImproperlyConfigured("Leases need their app: add 'django_lockstep.leases' to INSTALLED_APPS, and migrate")
    return apps.get_model("lockstep_leases", "Lease")


def on_own_connection(operation: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Run the operation in autocommit on the calling thread's connection, and once more if that connection was lost.

    Operations may run twice: a renewal keeps the token, and a holder whose acquire was not answered holds the lease
    under a name of its own. A connection that is lost the second time is left closed, see `DatabaseLeases.is_lost`.

    Raises ``TransactionManagementError`` in an open transaction, before any SQL (a ``TestCase``'s own does not count);
    `LeaseTimedOut`; the driver's errors, translated.
    """

    @functools.wraps(operation)
    def run(store: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        connection = store.connection
        _refuse_inside_transaction(connection)
        for is_last in (False, True):
            session = None
            try:
                connection.ensure_connection()
                session = connection.connection
                return operation(store, *args, **kwargs)
            except (OperationalError, InterfaceError) as error:
                _close_if_lost(connection, session)
                if not is_last and store.is_lost():
                    continue
                # 57014: the statement's time limit; 55P03: the session's own for locks.
                sqlstate = sqlstate_of(error)
                if sqlstate in ("57014", "55P03"):
                    raise LeaseTimedOut(sqlstate=sqlstate) from error
                with translated_errors():
                    raise
            except ProgrammingError as error:
                if sqlstate_of(error) in ("42883", "42P01"):  # no such function, no such table
                    error.add_note("Leases need their table and its functions: run manage.py migrate.")
                raise
        raise AssertionError("the second attempt returns or raises")

    return run


def _close_if_lost(connection: BaseDatabaseWrapper, session: object) -> None:
    """Close a broken connection, so that the next attempt gets a new one."""
    # The end of an atomic() that lost its connection opens another one, which is usable: compare them first.
    is_same = connection.connection is not None and connection.connection is session
    # Inside a TestCase's transaction the connection must stay open; the test still owns it.
    if not connection.in_atomic_block and not (is_same and connection.is_usable()):
        connection.close()


def _refuse_inside_transaction(connection: BaseDatabaseWrapper) -> None:
    manual = connection.connection is not None and not connection.in_atomic_block and not connection.autocommit
    if manual or in_own_atomic(connection):
        raise TransactionManagementError(
            f"A lease is acquired, refreshed and released outside of transactions, but one is open on database "
            f"{connection.alias!r}: others would not see the lease before COMMIT, and a rollback would undo it. Move "
            "it outside of atomic() (and of ATOMIC_REQUESTS: see non_atomic_requests); only guard() belongs inside."
        )


class DatabaseLeases(LeaseStore, ABC):
    """A `LeaseStore` on one of Django's databases; ``name`` is its alias.

    The verbs run in autocommit, never in the calling thread's open transaction, except `guard`.
    """

    def __init__(self, using: str) -> None:
        self.name = using

    @property
    def connection(self) -> BaseDatabaseWrapper:
        """The calling thread's connection."""
        return connections[self.name]

    @property
    def is_isolated(self) -> bool:
        return self.connection.in_atomic_block

    def acquire(self, claim: Claim, *, wait: float = 0.0, yields: bool = False) -> Grant | Holder | None:
        """Return the grant, or the holder after ``wait`` seconds (None: others are queueing for it).

        On PostgreSQL waiters get the lease in the order in which they asked: those of one process in that of their
        arrival, and the first of each process in that of the server. No newcomer gets it once the first in the server's
        queue has waited for `SLICE`: behind ``n`` others the wait is at most ``n + 1`` times that plus the time for
        which the lease is held, as long as no wait exceeds `TURN`. A waiter that loses its connection queues again on
        another one until the wait is over, also across a restart of the server. Raises the error of the last attempt to
        reach the database.
        """
        # The process's clock: it bounds this process's wait. What has expired, only the database's clock decides.
        until = time.monotonic() + (wait if wait and lease_waits() else 0.0)
        has_warned = False
        is_first: Callable[[float], bool] | None = None
        with ExitStack() as stack:
            # The last attempt is made when the time is over.
            for pause in itertools.chain(pauses(until), itertools.repeat(0.0)):
                try:
                    if is_first is None:
                        answer = self.take(claim, yields_to_queue=yields or wait > 0)
                    else:
                        answer = self._turn(claim, until=until, is_first=is_first)
                except (OperationalError, InterfaceError) as error:
                    if not self.is_lost() or time.monotonic() >= until:
                        raise
                    if not has_warned:
                        text = "A wait for a lease goes on, but database %r cannot be reached: %s"
                        logger.warning(text, self.name, error)
                    has_warned = True
                    time.sleep(pause)
                else:
                    if isinstance(answer, Grant) or time.monotonic() >= until:
                        return answer
                    # Of one process only the first takes a place in the server's queue: one at most could win there.
                    is_first = is_first or stack.enter_context(lines.joined((self.name, claim.key), places=1))
        raise AssertionError("the last attempt returns or raises")

    @on_own_connection
    def take(self, claim: Claim, *, yields_to_queue: bool = False) -> Grant | Holder | None:
        """Do as `take_here`, on the thread's own connection."""
        return self.take_here(claim, yields_to_queue=yields_to_queue)

    @on_own_connection
    def _turn(self, claim: Claim, *, until: float, is_first: Callable[[float], bool]) -> Grant | Holder | None:
        """Wait for the lease and take it as soon as it is free; return its holder where it stays taken."""
        return self._poll(claim, until=until)

    def _poll(
        self, claim: Claim, *, until: float, claim_turn: Callable[[], None] | None = None
    ) -> Grant | Holder | None:
        """Try again and again; ``claim_turn`` is called once, after `SLICE`."""
        start = time.monotonic()
        answer = self.take_here(claim)
        for pause in pauses(until):
            if isinstance(answer, Grant):
                break
            expires_in = answer.remaining + SHORTEST_PAUSE if isinstance(answer, Holder) else pause
            # No row lock is held here, only the advisory locks of the queue. Wakes right after a known expiry.
            time.sleep(min(pause, expires_in))
            if claim_turn and time.monotonic() - start > SLICE:
                claim_turn()
                claim_turn = None
            answer = self.take_here(claim)
        return answer

    @abstractmethod
    def take_here(self, claim: Claim, *, yields_to_queue: bool = False) -> Grant | Holder | None:
        """Take a free lease, or return its holder, in the open transaction if there is one.

        With ``yields_to_queue`` a lease whose turn is claimed is left to the first in the queue. None where its row
        does not exist yet, or another process was faster.
        """

    @abstractmethod
    def guard(self, key: str, token: int, *, within: Duration | None = None) -> None:
        """Guard the open transaction; see `django_lockstep.leases.guard`."""

    @on_own_connection
    def get(self, key: str) -> Holder | None:
        row = self._leases().held().with_times().filter(key=valid_key(key)).first()
        return None if row is None else holder_of(row)

    def abandon(self, key: str, owner: str) -> None:
        with suppress(DatabaseError, InterfaceError):
            self.close()
        del connections[self.name]  # an interrupted connection object may believe that it is inside a transaction
        with suppress(OperationalError, InterfaceError):
            self._leases().filter(key=key, owner=owner).force_release()

    def is_lost(self) -> bool:
        """Whether the operation that just failed had lost its connection, or had got none."""
        return self.connection.connection is None

    def close(self) -> None:
        self.connection.close()

    def list(self) -> Sequence[Holder]:
        """Return the holders of all leases that are not free, by key."""
        return [holder_of(row) for row in self._leases().held().with_times().order_by("key")]

    def _leases(self) -> Any:
        return lease_model()._default_manager.db_manager(self.name)


def holder_of(row: Any) -> Holder:
    """Return the holder of a lease that was read ``with_times``."""
    return Holder(
        key=row.key,
        owner=row.owner,
        token=row.token,
        since=row.acquired_at,
        remaining=max(0.0, row.remaining.total_seconds()),
        data=row.data,
        released=row.released_at is not None,
        under_guard=row.under_guard,
    )


def own_grant(claim: Claim, holder: Holder, *, requested_at: float) -> Grant | Holder:
    """Return the grant where the holder is this very claim, the holder otherwise.

    An earlier attempt succeeded then, and its answer was lost with the connection.
    """
    if not isinstance(claim.owner, UniqueOwner) or holder.owner != claim.owner or holder.released:
        return holder
    start = requested_at + holder.remaining - claim.ttl
    return Grant(token=holder.token, since=holder.since, requested_at=start, data=json.dumps(holder.data))
