"""Query sets of queued changes: those that are decided, deleting them, and retrying failed ones."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import connections, models, router, transaction
from django.db.models.functions import Now

from django_lockstep.errors import translated_errors
from django_lockstep.locking.durations import Duration, seconds

__all__ = ["PURGED_AT_ONCE", "QueuedQuerySet"]

PURGED_AT_ONCE = 1000
"""Changes that a purge deletes in one transaction by default."""


class QueuedQuerySet(models.QuerySet[Any]):
    """Changes in the queue, pending or decided."""

    def decided(self, older_than: Duration) -> QueuedQuerySet:
        """Return those that were applied or refused longer ago than this, by the database's clock.

        Pending changes are not among them, nor failed ones, which need attention. Raises ``TypeError`` or
        ``ValueError`` unless ``older_than`` is a positive duration.
        """
        ago = timedelta(seconds=seconds(older_than, name="older_than"))
        state = self.model.State
        return self.filter(state__in=[state.APPLIED, state.REFUSED], decided_at__lt=Now() - ago)

    def retry_failed(self) -> int:
        """Make the failed ones of these changes pending again; return how many there are.

        Call it after the cause is fixed. They are applied before changes that were queued later.
        """
        state = self.model.State
        return self.filter(state=state.FAILED).update(state=state.PENDING, refusal=None, decided_at=None)

    def purge(self, older_than: Duration, *, size: int = PURGED_AT_ONCE) -> int:
        """Delete those that were decided longer ago than this; return how many.

        Each transaction locks and deletes at most ``size`` rows, in primary-key order; rows that another session has
        locked are skipped. Inside a caller's transaction all batches belong to that one. The account's entry still has
        the idempotency key of a deleted change that was applied; the key of a refused one can be used again.

        Raises ``TypeError`` or ``ValueError`` unless ``older_than`` is a positive duration, ``ValueError`` unless
        ``size`` is a positive integer, and ``ProtectedError`` where another model protects a change.
        """
        if size < 1:
            raise ValueError(f"size must be a positive integer, not {size!r}")
        using: str = self._db or router.db_for_write(self.model)  # type: ignore[attr-defined]
        rows = self.using(using).decided(older_than).order_by("pk").only("pk")
        deleted = 0
        while pks := _delete_first(rows, size):
            deleted += len(pks)
            # Continue after the last key: from the beginning, the index scan would pass the rows just deleted.
            rows = rows.filter(pk__gt=pks[-1])
        return deleted


def _delete_first(rows: models.QuerySet[Any], size: int) -> list[Any]:
    """Lock and delete the first of the rows; return their keys."""
    skips = connections[rows.db].features.has_select_for_update_skip_locked
    of = ("self",) if connections[rows.db].features.has_select_for_update_of else ()
    with translated_errors(model=rows.model), transaction.atomic(using=rows.db):
        # SKIP LOCKED, so that a purge never waits for a consumer or for another purge.
        pks = [row.pk for row in rows.select_for_update(skip_locked=skips, of=of)[:size]]
        rows.model._base_manager.using(rows.db).filter(pk__in=pks).delete()
    return pks
