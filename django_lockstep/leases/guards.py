"""The guard: a token that is checked in the transaction which writes the data."""

from __future__ import annotations

from django.db import DEFAULT_DB_ALIAS, connections

from django_lockstep.leases.errors import LeaseLost
from django_lockstep.leases.stores import lease_model, store_of
from django_lockstep.leases.terms import valid_key, valid_token
from django_lockstep.locking.rows import require_transaction

__all__ = ["guard"]


def guard(key: str, token: int, *, using: str = DEFAULT_DB_ALIAS) -> None:
    """Make sure that the token holds the lease, and that nobody takes it over before the open transaction ends.

    One ``SELECT ... FOR KEY SHARE`` of the lease's row, which never waits. Refreshes, the heartbeat's among them, and
    the holder's own release go on; who wants to take the lease over is refused or waits, even if it expires meanwhile.
    Call it before or after the writes that it is for, in the same transaction and on the same database. Works at every
    isolation level.

    Raises `LeaseLost` if the token does not hold the lease, or somebody is just taking it over: let it end the
    transaction. ``TransactionManagementError`` outside a transaction, ``NotSupportedError`` on other databases than
    PostgreSQL, ``SerializationFailure``'s original at SERIALIZABLE where another transaction is in the way.
    """
    require_transaction(connections[using], lease_model())
    if not store_of(using).guard(valid_key(key), valid_token(token)):
        raise LeaseLost(f"Lease {key!r} is lost: token {token} does not hold it", key=key, token=token)
