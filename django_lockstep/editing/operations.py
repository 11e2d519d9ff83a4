"""Check out, check in, extend, take over, and look: each one transaction, all or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from django_lockstep.editing.clock import ClockTimestamp, after
from django_lockstep.editing.conf import time_to_live
from django_lockstep.editing.errors import TakeOverNotAllowed
from django_lockstep.editing.holds import (
    Wanted,
    end,
    end_expired,
    hold_all,
    holds_of,
    in_the_way,
    live_locks,
    locked_rows,
    status_in,
)
from django_lockstep.editing.models import CheckOut, EditLock, Status
from django_lockstep.editing.ownership import lost, owned, require_person
from django_lockstep.editing.plans import Plan, Related, lock_plan, plan_for, plan_of
from django_lockstep.editing.results import EditResult, TableStatus
from django_lockstep.editing.targets import Target, target_of
from django_lockstep.editing.tokens import digest_of, new_token, pass_of
from django_lockstep.errors import translated_errors
from django_lockstep.locking.durations import Duration

__all__ = [
    "announce",
    "atomic_for",
    "check_in",
    "check_out",
    "extend",
    "status_of",
    "take_over",
]

TAKE_OVER = "lockstep_editing.take_over_editlock"
"""The permission to end what others have checked out."""


@contextmanager
def atomic_for(target: Target, using: str) -> Iterator[None]:
    """Open a transaction, or a savepoint in the caller's."""
    with translated_errors(model=target.model, pk=target.pk), transaction.atomic(using=using):
        yield


def check_out(
    what: Any,
    editor: Any,
    *,
    ttl: Duration | None = None,
    related: Related = "references",
    depth: int | None = 1,
    shared_references: bool = False,
    note: str = "",
    require_token: bool = False,
    using: str | None = None,
) -> EditResult:
    """Take a table or a record for editing, with everything its foreign keys refer to, or nothing of it.

    ``what`` is a model, a model's label or an instance; ``editor`` a saved user. ``ttl`` is a timedelta or seconds
    (default: ``LOCKSTEP_EDIT_TTL``, 30 minutes), counted by the database's clock. ``depth`` says over how many foreign
    keys to go (None: all); a list as ``related`` names the tables and records to lock instead, some of those that the
    foreign keys lead to. With ``shared_references`` others who share theirs too may need the same rows unchanged. With
    ``require_token`` everybody has to show the token to write, to extend and to check in, the editor's other tabs too.

    A refusal is a result with ``lock_result`` False that tells who has what; a granted one has the ``token``. Waits for
    writes under way, by `EditLockedModel` and `fence`. Works in a transaction of the caller, at READ COMMITTED only.

    Raises `UnknownTable`, `UnknownRecord`, `NotTheEditor` for somebody who is no saved user, `UnrelatedTarget` for what
    is named as ``related`` and is not referred to, `ReferencesChanged` where the record's foreign keys change at that
    moment; ``ValueError`` for an option that does not exist; the lock errors of `django_lockstep.locking`.
    """
    require_person(editor)
    target, lasting = target_of(what), time_to_live(ttl)
    with atomic_for(target, database := target.database(using)):
        plan = lock_plan(target, related=related, depth=depth, shared_references=shared_references, using=database)
        return _grant(plan, editor, ttl=lasting, note=note, require_token=require_token)


def take_over(
    what: Any,
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
    """Check out what others have, and end their check-outs in the same transaction; as `check_out` otherwise.

    Ends every check-out that is in the way, with all that it holds. The ended ones stay in the table of check-outs with
    who took them over and when, and their editors are told by whatever they do next. Raises `TakeOverNotAllowed`
    unless all of them are the person's own (other tabs), or the person has ``lockstep_editing.take_over_editlock``.
    """
    require_person(by)
    target, lasting, allowed = target_of(what), time_to_live(ttl), by.has_perm(TAKE_OVER)
    with atomic_for(target, database := target.database(using)):
        plan = lock_plan(target, related=related, depth=depth, shared_references=shared_references, using=database)
        _end_obstacles(plan, by, allowed=allowed)
        return _grant(plan, by, ttl=lasting, note=note, require_token=require_token)


def _end_obstacles(plan: Plan, by: Any, *, allowed: bool) -> None:
    obstacles = {lock.check_out_id: lock.check_out for lock in in_the_way(_current(plan), plan.wanted)}
    if not allowed and any(check_out.editor_id != by.pk for check_out in obstacles.values()):
        words = _("%(editor)s lacks %(permission)s, and %(what)s is not theirs")
        facts = {"editor": by.get_username(), "permission": TAKE_OVER, "what": plan.target.name}
        raise TakeOverNotAllowed(words % facts)
    end(obstacles.values(), how=CheckOut.End.TAKEN_OVER, by=by, using=plan.using)


def _current(plan: Plan) -> list[EditLock]:
    """Return the locks that overlap the plan, locked, after ending what has expired."""
    return end_expired(locked_rows(plan.targets, using=plan.using), using=plan.using)


def _grant(plan: Plan, editor: Any, *, ttl: timedelta, note: str = "", require_token: bool = False) -> EditResult:
    """Take all of the plan or nothing, and say which. Needs a transaction and the plan's guards."""
    _current(plan)
    token = new_token()
    digest = digest_of(token)
    with transaction.atomic(using=plan.using):
        mine = CheckOut.objects.using(plan.using).create(
            editor=editor,
            model=plan.target.table,
            object_pk=plan.target.key,
            digest=digest,
            pass_digest=digest_of(pass_of(digest)),
            require_token=require_token,
            note=note,
            since=ClockTimestamp(),
            expires_at=after(ttl),
        )
        granted = hold_all(mine, plan.wanted, using=plan.using)
        if not granted:
            transaction.set_rollback(True, using=plan.using)
    return _build_result(plan, mine=mine if granted else None, lock_result=granted, token=token if granted else None)


def check_in(what: Any, editor: Any, *, token: str | None = None, using: str | None = None) -> EditResult:
    """Give back a check-out with everything that it holds.

    Without a token it is the editor's latest of this table or record. The answer's statuses are those after it: what
    others share stays locked by them. Raises `WrongToken`, `NotTheEditor`, `EditLockLost` where it has already ended.
    """
    target = target_of(what)
    with atomic_for(target, database := target.database(using)):
        mine = owned(target, editor, token=token, using=database)
        plan = plan_of(target, mine, using=database)
        if not _unexpired(mine, database).exists():
            raise lost(mine, using=database)
        end([mine], how=CheckOut.End.CHECKED_IN, using=database)
        return _build_result(plan, mine=None, lock_result=True)


def extend(
    what: Any, editor: Any, *, token: str | None = None, ttl: Duration | None = None, using: str | None = None
) -> EditResult:
    """Let a check-out last for ``ttl`` from now (a timedelta or seconds; default: ``LOCKSTEP_EDIT_TTL``).

    One UPDATE that happens only while the check-out has neither ended nor expired. Raises as `check_in` does.
    """
    target, lasting = target_of(what), time_to_live(ttl)
    with atomic_for(target, database := target.database(using)):
        mine = owned(target, editor, token=token, using=database)
        if not _unexpired(mine, database).update(expires_at=after(lasting)):
            raise lost(mine, using=database)
        return _build_result(plan_of(target, mine, using=database), mine=mine, lock_result=True)


def _unexpired(check_out: CheckOut, using: str) -> Any:
    return CheckOut.objects.using(using).filter(pk=check_out.pk, ended_at=None, expires_at__gt=ClockTimestamp())


def status_of(
    what: Any,
    *,
    token: str | None = None,
    related: Related = "references",
    depth: int | None = 1,
    shared_references: bool = False,
    using: str | None = None,
) -> EditResult:
    """Tell the status of a table or a record and of what it refers to, who has it, and what would have to end.

    ``must_end`` is empty where a check-out with the same options would be granted now. ``lock_result`` says whether the
    check-out with this ``token`` has it, ``lost`` how that ended. Takes no lock. Raises `UnknownTable`,
    `UnknownRecord`.
    """
    plan = plan_for(what, related=related, depth=depth, shared_references=shared_references, using=using)
    rows = CheckOut.objects.using(plan.using).filter(model=plan.target.table, object_pk=plan.target.key)
    mine = rows.filter(digest=digest_of(token)).first() if token else None
    if mine is None or _unexpired(mine, plan.using).exists():
        return _build_result(plan, mine=mine, lock_result=mine is not None)
    return _build_result(plan, mine=None, lock_result=False).using(lost=str(lost(mine, using=plan.using)))


def announce(what: Any, editor: Any, *, ttl: Duration | None = None, using: str | None = None) -> EditResult:
    """Tell others that somebody is here, and keep nobody out (presence).

    Lasts, is extended and checked in as a check-out is. The answer's ``present`` lists the others. Raises as
    `check_out` does.
    """
    require_person(editor)
    target, lasting = target_of(what), time_to_live(ttl)
    with atomic_for(target, database := target.database(using)):
        wanted = (Wanted(target=target, status=Status.NORMAL),)
        return _grant(Plan(target=target, wanted=wanted, using=database), editor, ttl=lasting)


def _build_result(plan: Plan, *, mine: CheckOut | None, lock_result: bool, token: str | None = None) -> EditResult:
    """Return the result for the plan as things are now, seen by who has the check-out ``mine``."""
    locks = live_locks(plan.targets, using=plan.using)
    others = [lock for lock in locks if mine is None or lock.check_out_id != mine.pk]
    must_end = holds_of(in_the_way(others, plan.wanted))
    first = holds_of(lock for lock in locks if lock not in others) or must_end
    return EditResult(
        lock_result=lock_result,
        current_status=status_in(locks, plan.target),
        fk_current_status=tuple(_statuses(plan, locks)),
        table=plan.target.table,
        record=plan.target.key,
        holder=first[0].editor if first else None,
        since=first[0].since if first else None,
        expires_at=first[0].expires_at if first else None,
        must_end=must_end,
        present=holds_of(lock for lock in others if lock.status == Status.NORMAL),
        token=token,
    )


def _statuses(plan: Plan, locks: Iterable[EditLock]) -> Iterator[TableStatus]:
    for one in plan.wanted:
        if one.status == Status.LOCKED:
            status = status_in(locks, one.target)
            yield TableStatus(table_name=one.target.table, record=one.target.key, current_status=status)
