"""Queued changes by the set: what is decided, and clearing it away."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import connections, models, router, transaction
from django.db.models.functions import Now

from django_lockstep.errors import translated_errors
from django_lockstep.locking.durations import Duration, seconds

__all__ = ["PURGED_AT_ONCE", "QueuedQuerySet"]

PURGED_AT_ONCE = 1000
"""Changes that a purge deletes in one transaction unless told otherwise."""


class QueuedQuerySet(models.QuerySet[Any]):
    """Changes in the queue, pending or decided."""

    def decided(self, older_than: Duration) -> QueuedQuerySet:
        """Return those that were applied or refused longer ago than this, by the database's clock.

        None is pending, and none has failed, which somebody has to look at.

        Raises ``TypeError`` and ``ValueError`` for what is no duration above zero.
        """
        ago = timedelta(seconds=seconds(older_than, name="older_than"))
        state = self.model.State
        return self.filter(state__in=[state.APPLIED, state.REFUSED], decided_at__lt=Now() - ago)

    def retry_failed(self) -> int:
        """Let consumers decide once more about those of these changes that failed; return how many there are.

        For the time when what refused them is mended. They come before the changes that were queued after them.
        """
        state = self.model.State
        return self.filter(state=state.FAILED).update(state=state.PENDING, refusal=None, decided_at=None)

    def purge(self, older_than: Duration, *, size: int = PURGED_AT_ONCE) -> int:
        """Delete those that were decided longer ago than this; return how many.

        Each transaction locks and deletes ``size`` rows at most, in primary-key order; rows that somebody else holds
        are left for the next time. In a transaction of the caller's all of it is one. What a deleted change was applied
        with is still known by the account's entry and its idempotency key; the key of a refused one may be used again.

        Raises ``TypeError`` and ``ValueError`` for what is no duration above zero, ``ValueError`` for a size below 1,
        and ``ProtectedError`` where a model of the project's own protects a change.
        """
        if size < 1:
            raise ValueError(f"size must be at least 1, not {size!r}")
        using: str = self._db or router.db_for_write(self.model)  # type: ignore[attr-defined]
        rows = self.using(using).decided(older_than).order_by("pk").only("pk")
        deleted = 0
        while pks := _delete_first(rows, size):
            deleted += len(pks)
            # Not from the beginning again, where the index still leads to what was just deleted.
            rows = rows.filter(pk__gt=pks[-1])
        return deleted


def _delete_first(rows: models.QuerySet[Any], size: int) -> list[Any]:
    """Lock and delete the first of the rows; return their keys."""
    skips = connections[rows.db].features.has_select_for_update_skip_locked
    of = ("self",) if connections[rows.db].features.has_select_for_update_of else ()
    with translated_errors(model=rows.model), transaction.atomic(using=rows.db):
        pks = [row.pk for row in rows.select_for_update(skip_locked=skips, of=of)[:size]]
        rows.model._base_manager.using(rows.db).filter(pk__in=pks).delete()
    return pks
