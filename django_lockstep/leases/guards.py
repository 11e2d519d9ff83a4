"""The guard: a token that is checked in the transaction which writes the data."""

from __future__ import annotations

import math

from django.db import DEFAULT_DB_ALIAS, connections

from django_lockstep.leases.errors import LeaseLost
from django_lockstep.leases.stores import lease_model, store_of
from django_lockstep.leases.terms import valid_key, valid_token
from django_lockstep.locking.durations import Duration, seconds
from django_lockstep.locking.rows import require_transaction
from django_lockstep.locking.transactions import is_of_testcase

__all__ = ["guard"]


def guard(key: str, token: int, *, within: Duration | None = None, using: str = DEFAULT_DB_ALIAS) -> None:
    """Make sure that the token holds the lease, and that nobody takes it over before the open transaction ends.

    One ``SELECT ... FOR KEY SHARE`` of the lease's row, which never waits. Refreshes, the heartbeat's among them, and
    the holder's own release go on; who wants to take the lease over is refused or waits, even if it expires meanwhile.
    Call it before or after the writes that it is for, in the same transaction and on the same database. Works at every
    isolation level.

    The transaction has to end ``within`` this time from the guard (a timedelta or seconds; default: the ttl with which
    the lease was acquired), or the server ends its session, and nothing was written: a holder that is stopped in it
    keeps the lease no longer than that. Servers before PostgreSQL 17 count the time in which the session sends nothing.
    A limit of the session's own that ends sooner stays, and so does that of an earlier guard. In the transaction of a
    ``TestCase`` there is no limit, because it would be the test's.

    Raises `LeaseLost` if the token does not hold the lease, or somebody is just taking it over: let it end the
    transaction. ``TransactionManagementError`` outside a transaction, ``NotSupportedError`` on other databases than
    PostgreSQL, ``SerializationFailure``'s original at SERIALIZABLE where another transaction is in the way.
    """
    require_transaction(connections[using], lease_model())
    limit = None if within is None else seconds(within, name="within")
    if is_of_testcase(connections[using]):
        limit = math.inf
    if not store_of(using).guard(valid_key(key), valid_token(token), within=limit):
        raise LeaseLost(f"Lease {key!r} is lost: token {token} does not hold it", key=key, token=token)
