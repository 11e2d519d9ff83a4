"""Rows that a query finds, written in primary-key order, or claimed one by one: for queues and for updates of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.core.exceptions import EmptyResultSet
from django.db import connections, models, transaction
from django.db.models.expressions import RawSQL

from django_lockstep.errors import translated_errors
from django_lockstep.locking.fields import tables_of
from django_lockstep.locking.rows import lock_rows, locking, row_lock, rows_to_write

M = TypeVar("M", bound=models.Model)


def claim(
    queryset: models.QuerySet[M],
    count: int = 1,
    *,
    by: str | Sequence[str] = (),
    no_key: bool = True,
    of: Sequence[str] | None = None,
    using: str | None = None,
) -> list[M]:
    """Lock the first rows of a query set that no other transaction has locked, until the transaction ends.

    The next jobs of a queue: several workers get different rows and none waits (``SKIP LOCKED``; PostgreSQL
    documentation, "SELECT: The Locking Clause"). Change the rows in the same transaction, so that the query set does
    not find them again; after a crash others get them. ``by`` names the fields that say which come first (``"-rank"``
    for the highest), by default those of the query set's ``order_by()``; rows that are equal in them come in
    primary-key order. ``no_key`` and ``of`` are those of `lock_rows`.

    Returns at most ``count`` rows in this order; none where all are locked. Raises ``ValueError`` for a count below 1,
    ``TransactionManagementError`` outside a transaction, ``NotSupportedError`` on a database without SKIP LOCKED, and
    `SerializationFailure` above READ COMMITTED.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count!r}")
    order = (by,) if isinstance(by, str) else by or queryset.query.order_by
    with locking(rows_to_write(queryset, using), None, no_key=no_key, of=of, skip_locked=True) as rows:
        return list(rows.order_by(*order, "pk")[:count])


def update_in_order(queryset: models.QuerySet[Any], **values: object) -> int:
    """Update the rows of a query set as ``update()`` does, but lock them first, in primary-key order.

    Two updates of the same rows in orders of the server's choice deadlock; two of these wait for each other, and for
    callers of `lock_rows`. In a transaction of its own, or in the caller's; one statement, two for rows in several
    tables or with a key of several columns. Rows that no longer match after the wait are left out. Returns how many
    rows it has written. Raises ``TypeError`` for a query set that was sliced, ``NotSupportedError`` for one with
    DISTINCT or GROUP BY, and `LockNotAvailable`, `DeadlockDetected`, `SerializationFailure`.
    """
    if queryset.query.is_sliced:
        raise TypeError("a query set that was sliced cannot be updated: claim() locks the first rows")
    rows: Any = rows_to_write(queryset)
    model, using = rows.model, rows.db
    features = connections[using].features
    in_one = len(tables_of(model)) == len(model._meta.pk_fields) == 1 and features.update_can_self_select
    with translated_errors(model=model), transaction.atomic(using=using, savepoint=False):
        try:
            keys = _locking_query(rows) if in_one else [row.pk for row in lock_rows(rows)]
        except EmptyResultSet:  # none()
            return 0
        return type(queryset)(model, using=using).filter(pk__in=keys).update(**values)


aclaim, aupdate_in_order = sync_to_async(claim), sync_to_async(update_in_order)
"""The async twins: of `claim` in a transaction of sync code, as `alock_row`; of `update_in_order` anywhere."""


def _locking_query(rows: models.QuerySet[Any]) -> RawSQL:
    """Return a subquery that locks the rows and returns their keys."""
    rows = rows.select_related(None).only("pk").order_by("pk")
    rows = rows.select_for_update(**row_lock(rows.model, using=rows.db))
    rows.query.set_annotation_mask(())
    # As text: of a query, Django keeps the columns alone in a subquery, and forgets the tables to lock (OF).
    sql, params = rows.query.get_compiler(rows.db).as_sql()
    return RawSQL(sql, params)  # noqa: S611 - text and parameters are Django's own
