"""The stores of leases on databases, by alias, and the lease guard: it checks the token where the data is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, router

from django_lockstep.leases.database import DatabaseLeases, lease_model
from django_lockstep.leases.portable import PortableLeases
from django_lockstep.leases.postgresql import PostgresLeases
from django_lockstep.locking.durations import Duration
from django_lockstep.stores.conf import get_store
from django_lockstep.stores.protocol import LeaseStore


def store_on(using: str | None = None) -> DatabaseLeases:
    """Return the store on this database; without a name, on the one that leases are written to."""
    # The model is looked up late, because projects' models may import this module.
    alias = using or router.db_for_write(lease_model())
    return PostgresLeases(alias) if connections[alias].vendor == "postgresql" else PortableLeases(alias)


def find_store(name: str | None, *, using: str | None = None) -> LeaseStore:
    """Return the store of this name in ``LOCKSTEP_STORES``; without a name, the one on this database."""
    return store_on(using) if name is None else get_store(name)


def store_from_options(name: str, options: Mapping[str, Any]) -> DatabaseLeases:
    """Return the store for its options in ``LOCKSTEP_STORES``: ``DATABASE`` is the alias."""
    if unknown := set(options) - {"DATABASE"}:
        raise ValueError(f"unknown {', '.join(sorted(unknown))}; a store on PostgreSQL has DATABASE")
    alias = options.get("DATABASE", DEFAULT_DB_ALIAS)
    if alias not in connections:
        raise ValueError(f"DATABASE must be an alias in DATABASES, not {alias!r}")
    return store_on(alias)


def guard(key: str, token: int, *, within: Duration | None = None, using: str = DEFAULT_DB_ALIAS) -> None:
    """Check that the token holds the lease, and prevent a takeover until the open transaction ends.

    One ``SELECT ... FOR KEY SHARE`` of the lease's row, which waits for a purge or a belated claim at most. Refreshes,
    by the heartbeat too, and the holder's own release still succeed; other claims are refused or wait, even if the
    lease expires in the meantime.
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
    store_on(using).guard(key, token, within=within)
