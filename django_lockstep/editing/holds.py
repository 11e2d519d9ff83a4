"""Check-outs and the edit locks that they hold: the one module that writes their rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.models import BooleanField, Case, Model, Q, QuerySet, Value, When
from django.utils.translation import gettext as _

from django_lockstep.editing.clock import ClockTimestamp, from_now, time_with_day
from django_lockstep.editing.conf import duration
from django_lockstep.editing.errors import EditLockLost, NotTheEditor, WrongToken
from django_lockstep.editing.models import CheckOut, EditLock, Status
from django_lockstep.editing.results import Hold, TableStatus
from django_lockstep.editing.targets import Target, key_text, label_of, parse_target
from django_lockstep.editing.tokens import digest_of, matches


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRequest:
    """The lock that a check-out requests for one table or record."""

    target: Target
    status: str
    shared: bool = False


def _overlap(targets: Collection[Target], *, whole_tables: bool) -> Q:
    """Match locks of the targets and of their tables; with ``whole_tables`` also of all records in target tables."""
    keys: dict[str, set[str]] = {}
    for target in targets:
        keys.setdefault(target.table, {""}).add(target.key)
    whole = {target.table for target in targets if target.pk is None} if whole_tables else set()
    conditions = [
        Q(model=table) if table in whole else Q(model=table, object_pk__in=sorted(pks)) for table, pks in keys.items()
    ]
    return reduce(or_, conditions, Q(pk__in=[]))


def overlaps(lock: EditLock, target: Target, *, whole_tables: bool = True) -> bool:
    """Whether the lock overlaps the target, as in `_overlap`."""
    if lock.model != target.table:
        return False
    return lock.object_pk in ("", target.key) or (target.pk is None and whole_tables)


def _rows(condition: Q, *, using: str) -> QuerySet[EditLock]:
    unexpired = When(check_out__expires_at__gt=ClockTimestamp(), then=Value(True))
    rows = EditLock.objects.using(using).filter(condition).select_related("check_out__editor")
    alive = Case(unexpired, default=Value(False), output_field=BooleanField())
    return rows.annotate(alive=alive).order_by("check_out_id", "pk")


def live_locks(targets: Collection[Target], *, using: str) -> list[EditLock]:
    """Return the unexpired locks that overlap the targets, without locking rows."""
    unexpired = Q(check_out__expires_at__gt=ClockTimestamp())
    return list(_rows(_overlap(targets, whole_tables=True) & unexpired, using=using))


def checked_out(table: Target | None = None, *, using: str = DEFAULT_DB_ALIAS) -> list[Target]:
    """Return the checked-out tables and records; with ``table`` only that table's records."""
    rows = CheckOut.objects.using(using).filter(ended_at=None, expires_at__gt=ClockTimestamp())
    rows = rows.filter(locks__status=Status.EDITING).distinct().order_by("model", "object_pk")
    if table is not None:
        rows = rows.filter(model=table.table).exclude(object_pk="")
    return [parse_target(model, key) for model, key in rows.values_list("model", "object_pk")]


def holders_among(model: type[Model], pks: Iterable[object], *, using: str = DEFAULT_DB_ALIAS) -> dict[str, EditLock]:
    """Return the lock of each of these records or of their table, by primary key as text.

    A presence is returned only for records without another lock.
    """
    keys = [key_text(model, pk) for pk in pks]
    rows = EditLock.objects.using(using).filter(model=label_of(model), object_pk__in=["", *keys])
    rows = rows.filter(check_out__expires_at__gt=ClockTimestamp()).select_related("check_out__editor").order_by("-pk")
    # A later one replaces an earlier one of the same record: sorted so that a lock replaces a presence.
    locks = {lock.object_pk: lock for lock in sorted(rows, key=lambda lock: lock.status != Status.NORMAL)}
    return {key: locks[object_pk] for key in keys for object_pk in ("", key) if object_pk in locks}


def locked_rows(
    targets: Collection[Target], *, whole_tables: bool = True, digest: str = "", using: str
) -> list[EditLock]:
    """Return the locks that overlap the targets, expired or not (``alive``), with their check-outs' rows locked.

    With a ``digest``, the locks of that check-out are included. One query locks all rows in primary-key order: two
    callers that each locked their own check-out first would deadlock. The lock (FOR NO KEY UPDATE) waits for a
    concurrent extension or end. The expiry is compared after the wait, so that a check-out that was just extended does
    not count as expired. Needs a transaction and the targets' advisory locks.
    """
    condition = _overlap(targets, whole_tables=whole_tables)
    rows = _rows(condition | Q(check_out__digest=digest) if digest else condition, using=using)
    features = connections[using].features
    precise = features.has_select_for_update_of and features.has_select_for_no_key_update
    rows = rows.select_for_update(of=("check_out",), no_key=True) if precise else rows.select_for_update()
    # A check-out may have ended during the wait: the statement's snapshot still has its locks.
    return [lock for lock in rows if lock.check_out.ended_at is None]


def end(check_outs: Iterable[CheckOut], *, ending: str, using: str, by: object = None) -> None:
    """End these check-outs, whose rows the caller has locked, and delete their locks."""
    ids = [check_out.pk for check_out in check_outs]
    # One UPDATE by keys: the rows are locked already, so that it does not wait.
    ended = CheckOut.objects.using(using).filter(pk__in=ids)
    ended.update(ended_at=ClockTimestamp(), ended_how=ending, ended_by=by)
    # CheckOut rows stay as the log; only the locks are deleted.
    EditLock.objects.using(using).filter(check_out__in=ids).delete()


def end_expired(locks: Iterable[EditLock], *, using: str) -> list[EditLock]:
    """End the expired check-outs of these locks; return the remaining locks."""
    locks = list(locks)
    expired = {lock.check_out_id: lock.check_out for lock in locks if not lock.alive}  # type: ignore[attr-defined]
    if expired:
        end(expired.values(), ending=CheckOut.End.EXPIRED, using=using)
    return [lock for lock in locks if lock.check_out_id not in expired]


def purge(*, using: str) -> tuple[int, int]:
    """End what has expired, and delete check-outs that ended longer ago than ``LOCKSTEP_EDIT_HISTORY``.

    Housekeeping: an expired check-out has no effect, whether it was purged or not. Returns the number of each. Rows are
    locked in primary-key order; rows locked by other transactions are skipped until the next run.
    """
    skip = connections[using].features.has_select_for_update_skip_locked
    rows = CheckOut.objects.using(using).order_by("pk").select_for_update(skip_locked=skip)
    with transaction.atomic(using=using):
        # Locked rows are skipped, so that a purge never makes a writer wait.
        expired = list(rows.filter(ended_at=None, expires_at__lte=ClockTimestamp()))
        end(expired, ending=CheckOut.End.EXPIRED, using=using)
        old = [row.pk for row in rows.filter(ended_at__lte=from_now(-duration("LOCKSTEP_EDIT_HISTORY")))]
        CheckOut.objects.using(using).filter(pk__in=old).delete()
    return len(expired), len(old)


def conflicting_locks(locks: Iterable[EditLock], requests: Sequence[LockRequest]) -> list[EditLock]:
    """Return the locks that exclude a request: all that overlap its target, unless both are shared."""
    return [
        lock
        for lock in locks
        if lock.status != Status.NORMAL
        and any(overlaps(lock, request.target) and not (lock.shared and request.shared) for request in requests)
    ]


# The INSERT itself has the condition: it writes a row for each target without an excluding lock, and the number of rows
# shows whether all were granted.
_INSERT = """
INSERT INTO {locks} (check_out_id, model, object_pk, status, shared)
SELECT %s, request.model, request.object_pk, request.status, request.shared
FROM ({requests}) AS request
WHERE NOT EXISTS (
    SELECT 1 FROM {locks} AS held
    WHERE held.model = request.model AND held.status <> 'normal' AND request.status <> 'normal'
    AND (held.object_pk = request.object_pk OR held.object_pk = '' OR request.object_pk = '')
    AND NOT (held.shared AND request.shared)
)
"""
_REQUEST = "SELECT %s AS model, %s AS object_pk, %s AS status, {boolean} AS shared"


def insert_locks(check_out: CheckOut, requests: Sequence[LockRequest], *, using: str) -> bool:
    """Insert the requested locks that no other lock excludes; return whether all were inserted.

    Expired check-outs must be ended before. On False the caller rolls back.
    """
    connection = connections[using]
    # In a UNION ALL of parameters PostgreSQL would type this one as text.
    boolean = "%s::boolean" if connection.vendor == "postgresql" else "%s"
    table = connection.ops.quote_name(EditLock._meta.db_table)
    rows = " UNION ALL ".join([_REQUEST.format(boolean=boolean)] * len(requests))
    params: list[Any] = [check_out.pk]
    for lock in requests:
        params += [lock.target.table, lock.target.key, str(lock.status), lock.shared]
    with connection.cursor() as cursor:
        cursor.execute(_INSERT.format(locks=table, requests=rows), params)
        # All or nothing: fewer rows mean that another check-out holds one of the targets.
        return bool(cursor.rowcount == len(requests))


def holds_of(locks: Iterable[EditLock]) -> tuple[Hold, ...]:
    """Return the check-outs of these locks, the earliest first."""
    check_outs: dict[int, Any] = {}
    statuses: dict[int, list[TableStatus]] = {}
    for lock in locks:
        check_outs[lock.check_out_id] = lock.check_out
        status = TableStatus(table_name=lock.model, record=lock.object_pk, current_status=lock.status)
        statuses.setdefault(lock.check_out_id, []).append(status)
    return tuple(
        Hold(
            id=number,
            editor=check_out.editor.get_username(),
            since=check_out.since,
            expires_at=check_out.expires_at,
            locked_by=check_out.target_name,
            note=check_out.note,
            holds=tuple(statuses[number]),
        )
        for number, check_out in sorted(check_outs.items())
    )


def status_in(locks: Iterable[EditLock], target: Target) -> str:
    """Return the target's status by these unexpired locks; a table's status applies to its records."""
    statuses = {lock.status for lock in locks if lock.model == target.table and lock.object_pk in ("", target.key)}
    return next((status for status in (Status.EDITING, Status.LOCKED) if status in statuses), Status.NORMAL).value


def require_user(editor: object) -> None:
    """Raise `NotTheEditor` unless the editor is a saved user."""
    if getattr(editor, "pk", None) is None:
        raise NotTheEditor(f"editor must be a saved user, not {editor!r}")


def find_check_out(target: Target, editor: Any, *, token: str | None, using: str) -> CheckOut:
    """Return the editor's check-out of the target, its row locked FOR NO KEY UPDATE; it may have ended.

    Without a token, the latest that was not ended. Raises `WrongToken`, `NotTheEditor`. Needs a transaction.
    """
    require_user(editor)
    rows = CheckOut.objects.using(using).filter(model=target.table, object_pk=target.key).order_by("-pk")
    # Locked before it is looked at: an extension, an end and a take-over of one check-out exclude each other.
    rows = rows.select_for_update(no_key=connections[using].features.has_select_for_no_key_update)
    if token is None:
        check_out = rows.filter(editor=editor, ended_at=None).first()
        if check_out is None:
            words = _("%(editor)s has not checked out %(what)s")
            raise NotTheEditor(words % {"editor": editor.get_username(), "what": target.name})
        if check_out.require_token:
            raise WrongToken(_("The check-out of %(what)s requires its token") % {"what": target.name})
        return check_out
    check_out = rows.filter(digest=digest_of(token)).first()
    if check_out is None or not matches(token, check_out.digest):
        raise WrongToken(_("The token does not belong to a check-out of %(what)s") % {"what": target.name})
    if check_out.editor_id != editor.pk:
        words = _("%(what)s was checked out by another user, not by %(editor)s")
        raise NotTheEditor(words % {"what": target.name, "editor": editor.get_username()})
    return check_out


def lost_error(check_out: CheckOut, *, using: str) -> EditLockLost:
    """Return the error that says how the check-out ended; without a recorded end it has expired."""
    row = CheckOut.objects.using(using).select_related("ended_by").get(pk=check_out.pk)
    ending = row.ended_how or CheckOut.End.EXPIRED.value
    by = row.ended_by.get_username() if row.ended_by else ""
    at = row.ended_at or row.expires_at
    words = {
        "expired": _("The check-out of %(what)s expired at %(at)s"),
        "taken over": _("The check-out of %(what)s was taken over by %(by)s at %(at)s"),
        "checked in": _("The check-out of %(what)s was checked in at %(at)s"),
    }[ending]
    return EditLockLost(words % {"what": row.target_name, "by": by, "at": time_with_day(at)}, how=ending, by=by, at=at)
