"""Consumers: apply batches of queued changes, each in one transaction, in any number of processes.

A consumer first locks the rows of the accounts, then reads their changes: so the changes of an account are applied in
order, whatever other consumers do. Accounts that another consumer has locked are skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from threading import Event
from typing import Any

from django.db import Error, connections, models, router, transaction

from accounts.contrib.queued.abstract import AbstractQueuedChange
from accounts.contrib.queued.deciding import REFUSALS, decide, decide_in_halves
from accounts.contrib.queued.errors import ChangeFailed, is_transient
from accounts.contrib.queued.outcomes import write_outcomes
from accounts.contrib.queued.waiting import notify_decided
from accounts.models import AbstractAccount
from django_lockstep.errors import ConcurrencyError, translated_errors

__all__ = ["apply_batch", "drain", "run"]

logger = logging.getLogger("accounts.queued")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
"""Seconds to wait after a transient error; doubled with each one that follows."""


def apply_batch(
    model: type[AbstractQueuedChange], *, size: int = 500, wait: bool = False, using: str | None = None
) -> int:
    """Decide about at most ``size`` changes in one transaction; return the number of decided changes.

    The accounts are locked ``FOR NO KEY UPDATE`` in primary-key order; without ``wait``, accounts that another session
    has locked are skipped. Changes that an account does not allow, or whose account does not exist, are refused; the
    others are applied by one `apply_many`. The results are written in the same transaction, so that a crash leaves
    either all of it or nothing. If the database refuses to write a change, the transaction is rolled back, and a second
    one decides in halves: the change that is refused has failed, and the others are decided without it.

    Correct at READ COMMITTED. Raises `DeadlockDetected`, above READ COMMITTED `SerializationFailure`, and other errors
    that are transient (see `is_transient`).
    """
    using = using or router.db_for_write(model)
    with translated_errors(model=model):
        try:
            return _apply(model, size, wait=wait, in_halves=False, using=using)
        except REFUSALS as error:
            if is_transient(error):
                raise
        return _apply(model, size, wait=wait, in_halves=True, using=using)


def _apply(model: type[AbstractQueuedChange], size: int, *, wait: bool, in_halves: bool, using: str) -> int:
    with transaction.atomic(using=using):
        # Accounts before changes: a consumer that has an account has all its pending changes, in their order.
        accounts, gone = _lock_accounts(model, size, wait=wait, using=using)
        rows = list(_lock_changes(_pending(model, using), accounts, gone, size))
        decided = (decide_in_halves if in_halves else decide)(model, rows, accounts, using=using)
        write_outcomes(model, decided, using=using)
        notify_decided(model, [pk for pk, _ in decided], using=using)
    # Logged after COMMIT, because a rollback would undo the decision.
    for pk, outcome in decided:
        if isinstance(outcome, ChangeFailed):
            logger.error("%s %s has failed: %s", model._meta.label, pk, outcome)
    return len(rows)


def drain(model: type[AbstractQueuedChange], *, size: int = 500, using: str | None = None) -> int:
    """Decide about all changes in the queue, waiting for locked accounts; return the number of decided changes."""
    done = 0
    # Unlocked accounts first; wait only when nothing else is left.
    while now := apply_batch(model, size=size, using=using) or apply_batch(model, size=size, wait=True, using=using):
        done += now
    return done


def run(
    model: type[AbstractQueuedChange],
    stop: Event,
    *,
    size: int = 500,
    linger: float = 0.0,
    poll: float = 0.05,
    using: str | None = None,
) -> int:
    """Apply batches until ``stop`` is set; return the number of decided changes.

    An empty queue is read every ``poll`` seconds. ``linger`` is how many seconds to wait for a batch to fill: larger
    batches cost less, and each change waits longer. A batch that has begun is completed before it stops. After a
    transient error (a lost connection, a server that restarts, a deadlock) it retries, with pauses that grow from 50
    milliseconds to 5 seconds.
    """
    using = using or router.db_for_write(model)
    done, pause = 0, _FIRST_PAUSE
    while not stop.is_set():
        try:
            if linger and 0 < _pending(model, using)[:size].count() < size:
                stop.wait(linger)
            now = apply_batch(model, size=size, using=using)
        except (Error, ConcurrencyError) as error:
            if not is_transient(error):
                raise
            logger.warning(
                "Applying queued changes failed; retrying in %.2f s: %s", pause, str(error).partition("\n")[0]
            )
            # Otherwise the next attempt would use the broken connection again.
            connections[using].close_if_unusable_or_obsolete()
            stop.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            if not now:
                stop.wait(poll)
            done, pause = done + now, _FIRST_PAUSE
    return done


def _pending(model: type[AbstractQueuedChange], using: str) -> models.QuerySet[Any]:
    rows: models.QuerySet[Any] = model._base_manager.using(using)
    return rows.filter(state=model.State.PENDING).order_by("pk")


def _lock_accounts(
    model: type[AbstractQueuedChange], size: int, *, wait: bool, using: str
) -> tuple[dict[Any, AbstractAccount], set[Any]]:
    """Lock the accounts of the next changes; return those that were locked, and the keys of those that do not exist."""
    rows = _pending(model, using).values_list("account_id", "target_id")[:size]
    wanted = {pk for pair in rows for pk in pair if pk is not None}
    accounts = model.account_model()._base_manager.using(using)
    features = connections[using].features
    skips = not wait and features.has_select_for_update_skip_locked
    # NO KEY, because rows that refer to the account may be inserted meanwhile. SKIP LOCKED is right for accounts, not
    # for changes: an account that is skipped keeps all its changes for the session that has it.
    locked = accounts.select_for_update(no_key=features.has_select_for_no_key_update, skip_locked=skips)
    held = {account.pk: account for account in locked.filter(pk__in=wanted).order_by("pk")}
    # Not locked means locked by another session, or gone: only the latter's changes may be refused.
    missing = wanted - held.keys()
    if skips and missing:
        # A row that another session has locked is still readable, even while that session deletes it.
        missing.difference_update(accounts.filter(pk__in=missing).values_list("pk", flat=True))
    return held, missing


def _lock_changes(
    pending: models.QuerySet[Any], accounts: dict[Any, AbstractAccount], gone: set[Any], size: int
) -> Iterator[Any]:
    """Lock and yield the changes whose accounts are all locked or gone, and that overtake no change that is left."""
    # Read again under the accounts' locks: another consumer may have decided about the changes seen before.
    rows = pending.filter(account_id__in=[*accounts, *gone])[:size].select_for_update()
    known, behind = accounts.keys() | gone, set[Any]()
    for change in rows:
        pks = {change.account_id, change.target_id} - {None}
        if pks <= known and not pks & behind:
            yield change
        else:
            # A later change of these accounts would overtake this one.
            behind |= pks
