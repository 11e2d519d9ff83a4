"""Check out, check in, extend, take over and query: each is one atomic transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import transaction
from django.utils.translation import gettext as _

from django_lockstep.editing.clock import ClockTimestamp, from_now
from django_lockstep.editing.conf import time_to_live
from django_lockstep.editing.errors import TakeOverNotAllowed
from django_lockstep.editing.holds import (
    LockRequest,
    conflicting_locks,
    end,
    end_expired,
    find_check_out,
    holds_of,
    insert_locks,
    live_locks,
    locked_rows,
    lost_error,
    require_user,
    status_in,
)
from django_lockstep.editing.models import LONGEST_NOTE, CheckOut, EditLock, Status
from django_lockstep.editing.plans import LockPlan, Related, lock_plan, plan_for, plan_of
from django_lockstep.editing.results import EditResult, TableStatus
from django_lockstep.editing.targets import Target, target_of
from django_lockstep.editing.tokens import digest_of, new_token, pass_of
from django_lockstep.errors import translated_errors
from django_lockstep.locking.durations import Duration
from django_lockstep.stores.terms import valid_text

TAKE_OVER = "lockstep_editing.take_over_editlock"
"""The permission to end other users' check-outs."""


@contextmanager
def atomic_for(target: Target, using: str) -> Iterator[None]:
    """Open a transaction, or a savepoint in the caller's."""
    with translated_errors(model=target.model, pk=target.pk), transaction.atomic(using=using):
        yield


def check_out(
    what: object,
    editor: object,
    *,
    ttl: Duration | None = None,
    related: Related = "references",
    depth: int | None = 1,
    shared_references: bool = False,
    note: str = "",
    require_token: bool = False,
    using: str | None = None,
) -> EditResult:
    """Check out a table or a record for editing, with everything its foreign keys refer to, all or nothing.

    ``what`` is a model, a model's label or an instance; ``editor`` a saved user. ``ttl`` is a timedelta or seconds
    (default: ``LOCKSTEP_EDIT_TTL``, 30 minutes), counted by the database's clock. ``depth`` is the number of foreign
    keys to follow (None: all); a list as ``related`` names the tables and records to lock instead, which must be
    reachable by foreign keys. With ``shared_references`` several check-outs may lock the same rows. With
    ``require_token`` the token is needed to write, to extend and to check in, also in the editor's other tabs.

    A refusal is a result with ``lock_result`` False that lists the holders; a granted result has the ``token``. Waits
    for concurrent writes by `EditLockedModel` and `require_editable`. Works in the caller's transaction, at READ
    COMMITTED only.

    Raises `UnknownTable`, `UnknownRecord`, `NotTheEditor` for an editor who is not a saved user, `UnrelatedTarget` for
    an unreachable target in ``related``, `ReferencesChanged` if the record's foreign keys change concurrently;
    ``TypeError`` or ``ValueError`` for an invalid option; the lock errors of `django_lockstep.locking`.
    """
    require_user(editor)
    valid_text(note, name="note", shortest=0, longest=LONGEST_NOTE)
    target, lifetime = target_of(what), time_to_live(ttl)
    with atomic_for(target, database := target.database(using)):
        plan = lock_plan(target, related=related, depth=depth, shared_references=shared_references, using=database)
        return _grant(plan, editor, ttl=lifetime, note=note, require_token=require_token)


def take_over(
    what: object,
    by: Any,
    *,
    ttl: Duration | None = None,
    related: Related = "references",
    depth: int | None = 1,
    shared_references: bool = False,
    note: str = "",
    require_token: bool = False,
    using: str | None = None,
) -> EditResult:
    """Check out, and end other check-outs that are in the way in the same transaction; otherwise as `check_out`.

    Ends each of them with all its locks. The table of check-outs keeps who took them over and when, and their editors
    get `EditLockLost` with their next operation. Raises `TakeOverNotAllowed` unless all of them are the user's own
    (other tabs), or the user has ``lockstep_editing.take_over_editlock``.
    """
    require_user(by)
    valid_text(note, name="note", shortest=0, longest=LONGEST_NOTE)
    target, lifetime, allowed = target_of(what), time_to_live(ttl), by.has_perm(TAKE_OVER)
    with atomic_for(target, database := target.database(using)):
        plan = lock_plan(target, related=related, depth=depth, shared_references=shared_references, using=database)
        # After lock_plan(): under the advisory locks no check-out can appear between this check and the grant.
        obstacles = {lock.check_out_id: lock.check_out for lock in conflicting_locks(_current(plan), plan.requests)}
        if not allowed and any(check_out.editor_id != by.pk for check_out in obstacles.values()):
            words = _("%(editor)s needs the permission %(permission)s to take over %(what)s from another user")
            names = {"editor": by.get_username(), "permission": TAKE_OVER, "what": target.name}
            raise TakeOverNotAllowed(words % names)
        end(obstacles.values(), ending=CheckOut.End.TAKEN_OVER, by=by, using=database)
        return _grant(plan, by, ttl=lifetime, note=note, require_token=require_token)


def _current(plan: LockPlan) -> list[EditLock]:
    """Return the locks that overlap the plan, locked, after ending what has expired."""
    return end_expired(locked_rows(plan.targets, using=plan.using), using=plan.using)


def _grant(plan: LockPlan, editor: Any, *, ttl: timedelta, note: str = "", require_token: bool = False) -> EditResult:
    """Take all of the plan or nothing. Needs a transaction and the plan's advisory locks."""
    # An expired check-out still has its locks, and the INSERT below does not look at the clock.
    _current(plan)
    token = new_token()
    digest = digest_of(token)
    # A savepoint, so that a refusal undoes the CheckOut row and not the caller's writes.
    with transaction.atomic(using=plan.using):
        mine = CheckOut.objects.using(plan.using).create(
            editor=editor,
            model=plan.target.table,
            object_pk=plan.target.key,
            # The token itself is never stored.
            digest=digest,
            pass_digest=digest_of(pass_of(digest)),
            require_token=require_token,
            note=note,
            since=ClockTimestamp(),
            expires_at=from_now(ttl),
        )
        granted = insert_locks(mine, plan.requests, using=plan.using)
        if not granted:
            transaction.set_rollback(True, using=plan.using)
    return _build_result(plan, mine=mine if granted else None, lock_result=granted, token=token if granted else None)


def check_in(what: object, editor: object, *, token: str | None = None, using: str | None = None) -> EditResult:
    """End a check-out and release all its locks.

    Without a token, the editor's latest of this table or record. The result has the statuses afterwards: references
    shared with others stay locked. Raises `WrongToken`, `NotTheEditor`, `EditLockLost` if it has already ended.
    """
    target = target_of(what)
    with atomic_for(target, database := target.database(using)):
        mine = find_check_out(target, editor, token=token, using=database)
        # Built before the end, which deletes the rows that it is made from.
        plan = plan_of(target, mine, using=database)
        if not _unexpired(mine, database).exists():
            raise lost_error(mine, using=database)
        end([mine], ending=CheckOut.End.CHECKED_IN, using=database)
        return _build_result(plan, mine=None, lock_result=True)


def extend(
    what: object, editor: object, *, token: str | None = None, ttl: Duration | None = None, using: str | None = None
) -> EditResult:
    """Let a check-out last for ``ttl`` from now (a timedelta or seconds; default: ``LOCKSTEP_EDIT_TTL``).

    One UPDATE that happens only while the check-out has neither ended nor expired. Raises as `check_in` does.
    """
    target, lifetime = target_of(what), time_to_live(ttl)
    with atomic_for(target, database := target.database(using)):
        mine = find_check_out(target, editor, token=token, using=database)
        # The UPDATE itself checks the expiry by the database's clock: an expired check-out is never revived.
        if not _unexpired(mine, database).update(expires_at=from_now(lifetime)):
            raise lost_error(mine, using=database)
        return _build_result(plan_of(target, mine, using=database), mine=mine, lock_result=True)


def _unexpired(check_out: CheckOut, using: str) -> Any:
    return CheckOut.objects.using(using).filter(pk=check_out.pk, ended_at=None, expires_at__gt=ClockTimestamp())


def status_of(
    what: object,
    *,
    token: str | None = None,
    related: Related = "references",
    depth: int | None = 1,
    shared_references: bool = False,
    using: str | None = None,
) -> EditResult:
    """Return the status of a table or a record and of its references, the holder, and the check-outs in the way.

    ``must_end`` is empty if a check-out with the same options would be granted now. ``lock_result`` says whether the
    check-out with this ``token`` holds the target, ``lost`` how that check-out ended. Takes no lock. Raises
    `UnknownTable`, `UnknownRecord`.
    """
    plan = plan_for(what, related=related, depth=depth, shared_references=shared_references, using=using)
    rows = CheckOut.objects.using(plan.using).filter(model=plan.target.table, object_pk=plan.target.key)
    mine = rows.filter(digest=digest_of(token)).first() if token else None
    if mine is None or _unexpired(mine, plan.using).exists():
        return _build_result(plan, mine=mine, lock_result=mine is not None)
    # A status that was lost is a result, not an error: asking for a status attempts nothing.
    result = _build_result(plan, mine=None, lock_result=False)
    return replace(result, lost=str(lost_error(mine, using=plan.using)))


def announce(what: object, editor: object, *, ttl: Duration | None = None, using: str | None = None) -> EditResult:
    """Announce a user's presence to others without locking anything.

    Expires, is extended and checked in like a check-out. The result's ``present`` lists the others. Raises as
    `check_out` does.
    """
    require_user(editor)
    target, lifetime = target_of(what), time_to_live(ttl)
    with atomic_for(target, database := target.database(using)):
        presence = LockRequest(target=target, status=Status.NORMAL)
        return _grant(LockPlan(target=target, requests=(presence,), using=database), editor, ttl=lifetime)


def _build_result(plan: LockPlan, *, mine: CheckOut | None, lock_result: bool, token: str | None = None) -> EditResult:
    """Return the plan's result by the current locks, from the view of the check-out ``mine``."""
    locks = live_locks(plan.targets, using=plan.using)
    other_locks = [lock for lock in locks if mine is None or lock.check_out_id != mine.pk]
    must_end = holds_of(conflicting_locks(other_locks, plan.requests))
    first = holds_of(lock for lock in locks if lock not in other_locks) or must_end
    return EditResult(
        lock_result=lock_result,
        current_status=status_in(locks, plan.target),
        fk_current_status=tuple(
            TableStatus(table_name=target.table, record=target.key, current_status=status_in(locks, target))
            for target in (request.target for request in plan.requests if request.status == Status.LOCKED)
        ),
        table=plan.target.table,
        record=plan.target.key,
        holder=first[0].editor if first else None,
        locked_by=first[0].locked_by if first else None,
        since=first[0].since if first else None,
        expires_at=first[0].expires_at if first else None,
        must_end=must_end,
        present=holds_of(lock for lock in other_locks if lock.status == Status.NORMAL),
        token=token,
    )


# Each opens a transaction of its own, in the thread of synchronous code.
acheck_out, acheck_in = sync_to_async(check_out), sync_to_async(check_in)
aextend, atake_over, astatus_of = sync_to_async(extend), sync_to_async(take_over), sync_to_async(status_of)
