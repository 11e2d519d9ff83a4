"""Housekeeping. Nothing depends on it: an expired check-out has no effect, whether it was purged or not."""

from __future__ import annotations

from django.db import connections, transaction

from django_lockstep.editing.clock import ClockTimestamp, before
from django_lockstep.editing.conf import history_for
from django_lockstep.editing.holds import end
from django_lockstep.editing.models import CheckOut

__all__ = ["purge"]


def purge(*, using: str) -> tuple[int, int]:
    """End what has expired, and delete check-outs that ended longer ago than ``LOCKSTEP_EDIT_HISTORY``.

    Returns the number of each. Rows are locked in primary-key order; rows locked by other transactions are skipped
    until the next run.
    """
    skip = connections[using].features.has_select_for_update_skip_locked
    rows = CheckOut.objects.using(using).order_by("pk").select_for_update(skip_locked=skip)
    with transaction.atomic(using=using):
        # Locked rows are skipped, so that a purge never makes a writer wait.
        expired = list(rows.filter(ended_at=None, expires_at__lte=ClockTimestamp()))
        end(expired, how=CheckOut.End.EXPIRED, using=using)
        old = [row.pk for row in rows.filter(ended_at__lte=before(history_for()))]
        CheckOut.objects.using(using).filter(pk__in=old).delete()
    return len(expired), len(old)
