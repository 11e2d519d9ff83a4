"""Housekeeping. Nothing depends on it: an expired check-out counts for nothing, whether it was swept or not."""

from __future__ import annotations

from django.db import connections, transaction

from django_lockstep.editing.clock import ClockTimestamp, before
from django_lockstep.editing.conf import history_for
from django_lockstep.editing.holds import end
from django_lockstep.editing.models import CheckOut

__all__ = ["purge"]


def purge(*, using: str) -> tuple[int, int]:
    """End what has expired, and delete check-outs that ended longer ago than ``LOCKSTEP_EDIT_HISTORY``.

    Returns how many of each. Rows are locked in primary-key order; those that somebody works on right now are left for
    the next time.
    """
    skip = connections[using].features.has_select_for_update_skip_locked
    rows = CheckOut.objects.using(using).order_by("pk").select_for_update(skip_locked=skip)
    with transaction.atomic(using=using):
        expired = list(rows.filter(ended_at=None, expires_at__lte=ClockTimestamp()))
        end(expired, how=CheckOut.End.EXPIRED, using=using)
        old = [row.pk for row in rows.filter(ended_at__lte=before(history_for()))]
        CheckOut.objects.using(using).filter(pk__in=old).delete()
    return len(expired), len(old)
