"""The lease guard: checks the token in the transaction that writes the data."""

from __future__ import annotations

import math

from django.db import DEFAULT_DB_ALIAS, connections

from django_lockstep.leases.errors import LeaseLost
from django_lockstep.leases.statements import lease_model, statements_of
from django_lockstep.locking.durations import Duration, seconds
from django_lockstep.locking.rows import require_transaction
from django_lockstep.locking.transactions import is_of_testcase
from django_lockstep.stores.terms import valid_key, valid_token

__all__ = ["guard"]


def guard(key: str, token: int, *, within: Duration | None = None, using: str = DEFAULT_DB_ALIAS) -> None:
    """Check that the token holds the lease, and prevent a takeover until the open transaction ends.

    One ``SELECT ... FOR KEY SHARE`` of the lease's row, which never waits. Refreshes, by the heartbeat too, and the
    holder's own release still succeed; other claims are refused or wait, even if the lease expires in the meantime.
    Call it before or after the writes that it protects, in the same transaction and on the same database. Works at
    every isolation level.

    The transaction must end ``within`` this time from the guard (a timedelta or seconds; default: the ttl with which
    the lease was acquired), or the server ends its session and nothing is written: a stopped holder cannot keep the
    lease longer than that. Servers before PostgreSQL 17 count only the time in which the session is idle. A shorter
    limit of the session, or of an earlier guard, stays in force. In the transaction of a ``TestCase`` there is no
    limit, because it would apply to the whole test.

    Raises `LeaseLost` if the token does not hold the lease or a takeover is in progress: let the error end the
    transaction. ``TransactionManagementError`` outside a transaction, ``NotSupportedError`` on other databases than
    PostgreSQL, and the driver's serialization failure where another SERIALIZABLE transaction interferes.
    """
    # In autocommit the row lock would end with its statement, before the write that it is for.
    require_transaction(connections[using], lease_model())
    limit = None if within is None else seconds(within, name="within")
    # A timeout inside a TestCase would end the connection of the whole test.
    if is_of_testcase(connections[using]):
        limit = math.inf
    if not statements_of(using).guard(valid_key(key), valid_token(token), within=limit):
        raise LeaseLost(f"Lease {key!r} is lost: token {token} does not hold it", key=key, token=token)
