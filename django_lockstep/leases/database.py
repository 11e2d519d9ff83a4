"""The store on a Django database: the lease operations of `statements`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, OperationalError, connections

from django_lockstep.leases.guards import guard
from django_lockstep.leases.statements import acquire, attempt, is_lost, lease_model, on_own_connection
from django_lockstep.stores.protocol import CALL_TIMEOUT
from django_lockstep.stores.terms import Claim, Grant, Holder, valid_key, valid_token

__all__ = ["DatabaseStore"]


class DatabaseStore:
    """Leases on any of Django's databases. ``name`` is the database's alias.

    The verbs of leases run in autocommit, never in the calling thread's open transaction, except `guard`.
    """

    def __init__(self, using: str) -> None:
        self.name = using

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, Any]) -> Self:
        """Return the store for its options in ``LOCKSTEP_STORES``: ``DATABASE`` is the alias."""
        if unknown := set(options) - {"DATABASE"}:
            raise ValueError(f"unknown {', '.join(sorted(unknown))}; a store on PostgreSQL has DATABASE")
        alias = options.get("DATABASE", DEFAULT_DB_ALIAS)
        if alias not in connections:
            raise ValueError(f"DATABASE must be an alias in DATABASES, not {alias!r}")
        return cls(alias)

    @property
    def is_isolated(self) -> bool:
        return connections[self.name].in_atomic_block

    def acquire(self, claim: Claim, *, wait: float = 0.0, yields: bool = False) -> Grant | Holder | None:
        if yields:
            return attempt(self.name, claim, yields_to_queue=True)
        return acquire(self.name, claim, wait=wait)

    def renew(self, key: str, token: int, *, ttl: float, timeout: float = CALL_TIMEOUT) -> bool:
        valid_token(token)
        return on_own_connection(self.name, lambda statements: statements.refresh(key, token, ttl=ttl, timeout=timeout))

    def note(self, key: str, token: int, *, data: str, timeout: float = CALL_TIMEOUT) -> bool:
        return on_own_connection(self.name, lambda statements: statements.note(key, token, data=data, timeout=timeout))

    def release(
        self, key: str, token: int, *, at_least: float = 0.0, held: float = 0.0, timeout: float = CALL_TIMEOUT
    ) -> bool:
        return on_own_connection(
            self.name, lambda statements: statements.release(key, token, at_least=at_least, timeout=timeout)
        )

    def get(self, key: str) -> Holder | None:
        name = valid_key(key)
        return on_own_connection(self.name, lambda statements: statements.holder(name, timeout=CALL_TIMEOUT))

    def guard(self, key: str, token: int, *, within: float | None = None) -> None:
        guard(key, token, within=within, using=self.name)

    def abandon(self, key: str, owner: str) -> None:
        with suppress(DatabaseError, InterfaceError):
            connections[self.name].close()
        del connections[self.name]  # an interrupted connection object may believe that it is inside a transaction
        with suppress(OperationalError, InterfaceError):
            self._leases().filter(key=key, owner=owner).force_release()

    def is_lost(self) -> bool:
        return is_lost(self.name)

    def close(self) -> None:
        connections[self.name].close()

    def list(self) -> Sequence[Holder]:
        """Return the holders of all leases that are not free, by key."""
        return [
            Holder(
                key=row.key,
                owner=row.owner,
                token=row.token,
                since=row.acquired_at,
                remaining=max(0.0, row.remaining.total_seconds()),
                data=row.data,
                released=row.released_at is not None,
                under_guard=row.under_guard and row.remaining.total_seconds() <= 0,
            )
            for row in self._leases().held().with_times().order_by("key")
        ]

    def _leases(self) -> Any:
        return lease_model()._default_manager.db_manager(self.name)
