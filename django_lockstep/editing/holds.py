"""Who holds what, and how that is written: the one place that touches the rows of `EditLock`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import BooleanField, Case, Model, Q, QuerySet, Value, When

from django_lockstep.editing.clock import ClockTimestamp
from django_lockstep.editing.models import CheckOut, EditLock, Status
from django_lockstep.editing.results import Hold, TableStatus
from django_lockstep.editing.targets import Target, key_text, label_of, restored

__all__ = [
    "Wanted",
    "checked_out",
    "end",
    "end_expired",
    "hold_all",
    "holders_among",
    "holds_of",
    "in_the_way",
    "is_alive",
    "live_locks",
    "locked_rows",
    "overlaps",
    "status_in",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a check-out wants of one table or record."""

    target: Target
    status: str
    shared: bool = False


def _overlap(targets: Collection[Target], *, whole_tables: bool) -> Q:
    """Match the rows of the targets and of the tables that they are in; with whole tables, of all records in them."""
    keys: dict[str, set[str]] = {}
    for target in targets:
        keys.setdefault(target.table, {""}).add(target.key)
    whole = {target.table for target in targets if target.pk is None} if whole_tables else set()
    conditions = [
        Q(model=table) if table in whole else Q(model=table, object_pk__in=sorted(wanted))
        for table, wanted in keys.items()
    ]
    return reduce(or_, conditions, Q(pk__in=[]))


def overlaps(lock: EditLock, target: Target, *, whole_tables: bool = True) -> bool:
    """Whether the lock is one of those that a query for the target finds."""
    if lock.model != target.table:
        return False
    return lock.object_pk in ("", target.key) or (target.pk is None and whole_tables)


def _rows(condition: Q, *, using: str) -> QuerySet[EditLock]:
    unexpired = When(check_out__expires_at__gt=ClockTimestamp(), then=Value(True))
    rows = EditLock.objects.using(using).filter(condition).select_related("check_out__editor")
    alive = Case(unexpired, default=Value(False), output_field=BooleanField())
    return rows.annotate(alive=alive).order_by("check_out_id", "pk")


def live_locks(targets: Collection[Target], *, using: str) -> list[EditLock]:
    """Return what overlaps the targets and has not expired, to look at."""
    unexpired = Q(check_out__expires_at__gt=ClockTimestamp())
    return list(_rows(_overlap(targets, whole_tables=True) & unexpired, using=using))


def checked_out(table: Target | None = None, *, using: str = DEFAULT_DB_ALIAS) -> list[Target]:
    """Return the tables and records that somebody has checked out now; of one table, its records alone."""
    rows = CheckOut.objects.using(using).filter(ended_at=None, expires_at__gt=ClockTimestamp())
    rows = rows.filter(locks__status=Status.EDITING).distinct().order_by("model", "object_pk")
    if table is not None:
        rows = rows.filter(model=table.table).exclude(object_pk="")
    return [restored(model, key) for model, key in rows.values_list("model", "object_pk")]


def holders_among(model: type[Model], pks: Iterable[Any], *, using: str = DEFAULT_DB_ALIAS) -> dict[str, EditLock]:
    """Return who has each of these records, by primary key as text: a lock of the record, or one of its table.

    Somebody who is only there counts where nobody has it.
    """
    keys = [key_text(model, pk) for pk in pks]
    rows = EditLock.objects.using(using).filter(model=label_of(model), object_pk__in=["", *keys])
    rows = rows.filter(check_out__expires_at__gt=ClockTimestamp()).select_related("check_out__editor").order_by("-pk")
    found = {lock.object_pk: lock for lock in sorted(rows, key=lambda lock: lock.status != Status.NORMAL)}
    return {key: found[one] for key in keys for one in ("", key) if one in found}


def locked_rows(
    targets: Collection[Target], *, whole_tables: bool = True, digest: str = "", using: str
) -> list[EditLock]:
    """Return what overlaps the targets, expired or not (``alive``), with its check-outs locked in primary-key order.

    With a ``digest``, what that check-out holds is among the rows. One query locks all of them: of two that lock each
    other's check-outs, each its own first, one would be a deadlock's victim. The lock (FOR NO KEY UPDATE) waits for
    whoever extends or ends one of them right now. The time is compared after the wait, so that nobody takes for expired
    what has just been extended. Needs a transaction and the targets' guards.
    """
    condition = _overlap(targets, whole_tables=whole_tables)
    rows = _rows(condition | Q(check_out__digest=digest) if digest else condition, using=using)
    rows = rows.select_for_update(of=("check_out",), no_key=True) if _has_of(using) else rows.select_for_update()
    return [lock for lock in rows if lock.check_out.ended_at is None]


def _has_of(using: str) -> bool:
    features = connections[using].features
    return bool(features.has_select_for_update_of and features.has_select_for_no_key_update)


def end(check_outs: Iterable[CheckOut], *, how: str, using: str, by: Any = None) -> None:
    """End these check-outs, whose rows are locked, with everything that they hold."""
    ids = [check_out.pk for check_out in check_outs]
    ended = CheckOut.objects.using(using).filter(pk__in=ids)
    ended.update(ended_at=ClockTimestamp(), ended_how=how, ended_by=by)
    EditLock.objects.using(using).filter(check_out__in=ids).delete()


def end_expired(locks: Iterable[EditLock], *, using: str) -> list[EditLock]:
    """End the check-outs that have expired, of these locked rows; return the rows that are left."""
    locks = list(locks)
    expired = {lock.check_out_id: lock.check_out for lock in locks if not is_alive(lock)}
    if expired:
        end(expired.values(), how=CheckOut.End.EXPIRED, using=using)
    return [lock for lock in locks if lock.check_out_id not in expired]


def is_alive(lock: EditLock) -> bool:
    """Whether the lock's check-out had not expired when the row was read."""
    return bool(getattr(lock, "alive", True))


def in_the_way(locks: Iterable[EditLock], wanted: Iterable[Wanted]) -> list[EditLock]:
    """Return the locks that exclude what is wanted: all that overlap it, unless both only need it unchanged."""
    wanted = list(wanted)
    return [
        lock
        for lock in locks
        if lock.status != Status.NORMAL
        and any(overlaps(lock, one.target) and not (lock.shared and one.shared) for one in wanted)
    ]


# The condition stands in the write itself: a row is written for each target that nobody holds in a way that excludes
# it, and the count of rows says whether that was all of them.
_HOLD = """
INSERT INTO {locks} (check_out_id, model, object_pk, status, shared)
SELECT %s, wanted.model, wanted.object_pk, wanted.status, wanted.shared
FROM ({wanted}) AS wanted
WHERE NOT EXISTS (
    SELECT 1 FROM {locks} AS held
    WHERE held.model = wanted.model AND held.status <> 'normal' AND wanted.status <> 'normal'
    AND (held.object_pk = wanted.object_pk OR held.object_pk = '' OR wanted.object_pk = '')
    AND NOT (held.shared AND wanted.shared)
)
"""
_WANTED = "SELECT %s AS model, %s AS object_pk, %s AS status, {boolean} AS shared"


def hold_all(check_out: CheckOut, wanted: Sequence[Wanted], *, using: str) -> bool:
    """Write that the check-out holds what it wants, each only while its status allows; whether it got all of it.

    Expired check-outs have to be ended before. On False the caller takes back what was written.
    """
    connection = connections[using]
    boolean = "%s::boolean" if connection.vendor == "postgresql" else "%s"
    table = connection.ops.quote_name(EditLock._meta.db_table)
    rows = " UNION ALL ".join([_WANTED.format(boolean=boolean)] * len(wanted))
    values = [value for one in wanted for value in (one.target.table, one.target.key, str(one.status), one.shared)]
    with connection.cursor() as cursor:
        cursor.execute(_HOLD.format(locks=table, wanted=rows), [check_out.pk, *values])
        return bool(cursor.rowcount == len(wanted))


def holds_of(locks: Iterable[EditLock]) -> tuple[Hold, ...]:
    """Return the check-outs behind these locks, the earliest first."""
    grouped: dict[int, list[EditLock]] = {}
    for lock in locks:
        grouped.setdefault(lock.check_out_id, []).append(lock)
    return tuple(_hold(grouped[number]) for number in sorted(grouped))


def _hold(locks: list[EditLock]) -> Hold:
    first = locks[0]
    return Hold(
        id=first.check_out_id,
        editor=first.editor.get_username(),
        since=first.since,
        expires_at=first.expires_at,
        locked_by=first.locked_by,
        note=first.note,
        holds=tuple(
            TableStatus(table_name=lock.model, record=lock.object_pk, current_status=lock.status) for lock in locks
        ),
    )


def status_in(locks: Iterable[EditLock], target: Target) -> str:
    """Return the target's status according to these live locks; a record in a table that is out has the table's."""
    found = {lock.status for lock in locks if lock.model == target.table and lock.object_pk in ("", target.key)}
    return next((status for status in (Status.EDITING, Status.LOCKED) if status in found), Status.NORMAL).value
