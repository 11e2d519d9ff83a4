"""The manager: acquires, inspects and purges leases."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Unpack

from asgiref.sync import sync_to_async
from django.db import connections, models, router
from django.db.models import ExpressionWrapper, F, Func, Max, Q, Value
from django.db.models.functions import Now

from django_lockstep.leases.database import DatabaseLeases
from django_lockstep.leases.handles import LeaseHandle, aacquire_from, acquire_from
from django_lockstep.leases.operations import UNDER_GUARD
from django_lockstep.leases.stores import store_on
from django_lockstep.locking.durations import Duration, seconds
from django_lockstep.stores.terms import ClaimOptions, Holder, claim

BATCH = 100
"""Rows that `LeaseQuerySet.purge` deletes in a statement, which locks those that were just acquired as well, to its
end."""


class UnderGuard(Func):
    """Whether a transaction guards the lease of the key; False on databases without lease guards."""

    output_field = models.BooleanField()
    arity = 1

    def as_sql(self, compiler: Any, connection: object, *args: object, **context: object) -> Any:
        return compiler.compile(Value(False))

    def as_postgresql(self, compiler: Any, connection: Any, **context: object) -> Any:
        return super().as_sql(compiler, connection, template=UNDER_GUARD.format(key="%(expressions)s"))


class LeaseQuerySet(models.QuerySet[Any]):
    """Rows of leases, held, expired or released."""

    def held(self) -> LeaseQuerySet:
        """Return those that cannot be acquired now, by the database's clock or because of a guard."""
        return self.filter(Q(expires_at__gt=Now()) | Q(UnderGuard("key")))

    def with_times(self) -> LeaseQuerySet:
        """Add ``age`` and ``remaining``, by the database's clock, and whether they are ``under_guard``.

        Expired leases have a negative ``remaining``.
        """
        duration = models.DurationField()
        timed: LeaseQuerySet = self.annotate(
            age=ExpressionWrapper(Now() - F("acquired_at"), duration),
            remaining=ExpressionWrapper(F("expires_at") - Now(), duration),
            under_guard=UnderGuard("key"),
        )
        return timed

    def force_release(self) -> int:
        """Release these leases by force; return how many were held.

        Holders learn of it with their next refresh or guard; their work may still be running.
        """
        # Released and expired at once: the holder's token fails from now on, and the next claim need not wait.
        return self.held().update(expires_at=Now(), released_at=Now())

    def ended(self, older_than: Duration) -> LeaseQuerySet:
        """Return those that expired or were released longer ago than this.

        Excludes the row of the highest token on databases without a sequence, which would forget it.
        """
        ago = timedelta(seconds=seconds(older_than, name="older_than"))
        # Released rows have expires_at in the past too, so one condition covers both.
        rows = self.filter(expires_at__lt=Now() - ago)
        if connections[self.db].vendor == "postgresql":
            return rows
        highest = self.model._base_manager.using(self.db).aggregate(token=Max("token"))["token"]
        return rows.exclude(token=highest)

    def purge(self, older_than: Duration) -> int:
        """Delete rows whose lease ended longer ago than this; return how many. Their tokens are never used again.

        Outside of a transaction it commits every `BATCH` rows. A guard of a lease that was acquired in the meantime may
        wait for that commit.
        """
        using: str = self._db or router.db_for_write(self.model)  # type: ignore[attr-defined]
        rows, deleted = self.using(using).order_by(), 0
        while keys := list(rows.ended(older_than).values_list("pk", flat=True)[:BATCH]):
            # One DELETE, which compares the expiry again after any wait; delete() may collect keys first.
            deleted += rows.filter(pk__in=keys).ended(older_than)._raw_delete(using)
        return deleted


_Manager = models.Manager.from_queryset(LeaseQuerySet)


class LeaseManager(_Manager[Any]):
    """``Lease.objects``; use ``db_manager(alias)`` for another database than the router's."""

    def acquire(
        self, key: str, ttl: Duration, *, wait: Duration = 0, **options: Unpack[ClaimOptions]
    ) -> LeaseHandle | None:
        """Take the lease for ``ttl``; return None if it is still held after ``wait``.

        Durations are seconds or a ``timedelta``. ``owner`` is the name shown to others (default: host, process, thread
        and a random part), ``data`` any JSON value shown to others (default: the last holder's data, or None). With
        ``at_least`` the lease stays taken for that long from now, even if it is released earlier.

        Waiters get the lease in the order in which they asked, and after `database.SLICE` before any newcomer (on
        PostgreSQL; on other databases and in async code they poll). A refusal writes nothing.

        Raises ``TypeError`` and ``ValueError`` before any SQL for a key that is not 1 to 255 characters without NUL,
        and for the other arguments; ``TransactionManagementError`` in an open transaction; `LeaseTimedOut` and the
        driver's errors.
        """
        request = claim(key, ttl, **options)
        answer = acquire_from(self._store, request, wait=seconds(wait, name="wait", or_zero=True))
        return answer if isinstance(answer, LeaseHandle) else None

    def holder(self, key: str) -> Holder | None:
        """Return the holder of the lease, with its times and its data; None if it is free.

        Raises as `acquire` does.
        """
        return self._store.get(key)

    async def aacquire(
        self, key: str, ttl: Duration, *, wait: Duration = 0, **options: Unpack[ClaimOptions]
    ) -> LeaseHandle | None:
        """Do as `acquire`, from async code; waits by polling, behind the callers in the queue."""
        request = claim(key, ttl, **options)
        answer = await aacquire_from(self._store, request, wait=seconds(wait, name="wait", or_zero=True))
        return answer if isinstance(answer, LeaseHandle) else None

    async def aholder(self, key: str) -> Holder | None:
        return await sync_to_async(self.holder)(key)

    @property
    def _store(self) -> DatabaseLeases:
        """The database that leases are written to."""
        return store_on(self._db or router.db_for_write(self.model))
