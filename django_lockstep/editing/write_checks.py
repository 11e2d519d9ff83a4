"""Write checks: a write passes only while no other user has checked out the rows that it changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import Any

from django.db import connections, models, router, transaction
from django.db.models.deletion import Collector
from django.db.transaction import TransactionManagementError
from django.utils.translation import gettext as _

from django_lockstep.editing.advisory import lock_for_writes
from django_lockstep.editing.clock import time_with_day
from django_lockstep.editing.errors import EditLocked, EditLockLost
from django_lockstep.editing.holds import locked_rows, lost_error, overlaps
from django_lockstep.editing.models import CheckOut, EditLock, Status
from django_lockstep.editing.plans import closure_of, own_records, own_targets
from django_lockstep.editing.targets import Target, target_of
from django_lockstep.editing.tokens import digest_of, matches, pass_of
from django_lockstep.editing.writers import Writer, current_writer
from django_lockstep.errors import translated_errors

TOKEN_SETTING = "lockstep.edit_token"  # noqa: S105 - a name, no secret
"""PostgreSQL parameter, local to a transaction: tokens, separated by blanks, that `AddEditGuard` accepts."""


def require_editable(what: object, pks: Iterable[Any] | None = None, *, using: str | None = None) -> None:
    """Raise if another user has checked out the rows to be written, and prevent it until the transaction ends.

    ``what`` is an instance, or a model whose records ``pks`` are to be written (None: its whole table). `writing` names
    the writer. Rows with the status ``locked`` cannot be written by any user, because a check-out needs them unchanged.
    Call it before writes that do not use an instance's ``save()``, such as ``queryset.update()``. Keys without a row
    are ignored, and an empty ``pks`` passes. Works at READ COMMITTED only.

    Raises `EditLocked`; `EditLockLost` where the writer's own check-out has ended; `UnknownRecord` for an instance
    without a row; ``TransactionManagementError`` outside a transaction, before any SQL; the lock errors of
    `django_lockstep.locking`.
    """
    target = target_of(what)
    database = target.database(using)
    if not connections[database].in_atomic_block:
        raise TransactionManagementError(
            f"require_editable() needs a transaction on {database!r}: call it inside transaction.atomic()"
        )
    if pks is None:
        rows = list(closure_of(target, depth=0, using=database)[0])
    else:
        rows = own_records(target.model, pks, using=database)
    # Without rows there is nothing to lock, and an empty array would still cost a statement.
    if rows:
        _check(rows, whole_tables=any(row.pk is None for row in rows), using=database)


def require_instance_editable(instance: models.Model, *, using: str | None = None) -> None:
    """Do as `require_editable` for a write of one instance, also for an insert."""
    _check(own_targets(instance), whole_tables=False, using=using or router.db_for_write(type(instance)))


@contextmanager
def checked_write(instance: models.Model, *, using: str) -> Iterator[None]:
    """Check a write of the instance, in the caller's transaction or one of its own around the block."""
    with _in_transaction(using):
        require_instance_editable(instance, using=using)
        yield


@contextmanager
def checked_deletion(instance: models.Model, *, using: str) -> Iterator[None]:
    """Do as `checked_write` for a deletion, with the rows that Django's deletion cascades to."""
    with _in_transaction(using):
        # Django's own collector, so that exactly the rows of the later deletion are checked.
        collector = Collector(using=using, origin=instance)
        collector.collect([instance])
        targets = list(chain.from_iterable(map(own_targets, chain([instance], *collector.data.values()))))
        for rows in collector.fast_deletes:
            targets += [Target(rows.model, pk) for pk in rows.values_list("pk", flat=True)]
        _check(targets, whole_tables=False, using=using)
        yield


def _in_transaction(using: str) -> AbstractContextManager[None]:
    return nullcontext() if connections[using].in_atomic_block else transaction.atomic(using=using)


def _check(targets: list[Target], *, whole_tables: bool, using: str) -> None:
    writer = current_writer()
    digest = digest_of(writer.token) if writer and writer.token else ""
    with translated_errors(model=targets[0].model, pk=targets[0].pk):
        # Set even without a writer, to clear the token of an earlier writer in this transaction.
        settings = {TOKEN_SETTING: writer.token if writer else ""}
        # Before the locks are read: a check-out that is in progress commits first, and is then visible.
        lock_for_writes(targets, whole_tables=whole_tables, settings=settings, using=using)
        locks = locked_rows(targets, whole_tables=whole_tables, digest=digest, using=using)
    locks = [lock for lock in locks if lock.alive]  # type: ignore[attr-defined]
    # Before the obstacles: a writer whose check-out has ended learns that, and not that another user now has it.
    if digest and all(lock.check_out.digest != digest for lock in locks):
        check_out = CheckOut.objects.using(using).filter(digest=digest).first()
        unknown = EditLockLost(_("The token does not belong to a check-out"))
        raise lost_error(check_out, using=using) if check_out else unknown
    for lock in locks:
        is_obstacle = any(overlaps(lock, target, whole_tables=whole_tables) for target in targets)
        if is_obstacle and lock.status != Status.NORMAL and not _is_writers(lock, writer):
            raise refusal(lock)
    # A token was passed with the advisory locks; without one, the trigger needs proofs: it could not trust a mere name.
    if writer and not writer.token and connections[using].vendor == "postgresql":
        passes = {pass_of(lock.check_out.digest) for lock in locks if _is_writers(lock, writer)}
        if passes:
            with connections[using].cursor() as cursor:
                cursor.execute("SELECT set_config(%s, %s, true)", [TOKEN_SETTING, " ".join(sorted(passes))])


def _is_writers(lock: EditLock, writer: Writer | None) -> bool:
    if writer is None or lock.status != Status.EDITING:
        return False
    if writer.token:
        return matches(writer.token, lock.check_out.digest)
    is_theirs = bool(writer.key) and str(lock.check_out.editor_id) == writer.key
    return is_theirs and not lock.check_out.require_token


def refusal(lock: EditLock) -> EditLocked:
    """Return the error that names the holder."""
    check_out: Any = lock.check_out
    holder, since, expires = check_out.editor.get_username(), check_out.since, check_out.expires_at
    if lock.status == Status.EDITING:
        words = _("%(what)s has been checked out by %(holder)s since %(since)s until %(expires)s")
    else:
        words = _("%(what)s is locked because %(cause)s refers to it, by %(holder)s since %(since)s until %(expires)s")
    times = {"since": time_with_day(since), "expires": time_with_day(expires)}
    return EditLocked(
        words % {"what": str(lock), "cause": lock.locked_by, "holder": holder, **times},
        model=target_of(lock.model).model,
        pk=lock.object_pk or None,
        holder=holder,
        since=since,
        expires=expires,
        locked_by=lock.locked_by,
    )
