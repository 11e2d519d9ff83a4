"""Consumers: batches of queued changes, applied in one transaction each, by as many processes as one likes.

A consumer holds the rows of the accounts whose changes it applies, and reads these changes only then: so the changes of
an account are applied in order, whatever other consumers do. Rows that another consumer holds are skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from threading import Event
from typing import Any

from django.db import Error, connections, models, router, transaction

from accounts.contrib.queued.deciding import REFUSALS, decide, decide_apart
from accounts.contrib.queued.errors import ChangeFailed, may_pass
from accounts.contrib.queued.marking import mark
from accounts.contrib.queued.waiting import announce
from django_lockstep.errors import ConcurrencyError, translated_errors

__all__ = ["apply_batch", "drain", "run"]

logger = logging.getLogger("accounts.queued")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
"""Seconds to wait after an error that may pass; doubled with each one that follows."""


def apply_batch(model: type[Any], *, size: int = 500, wait: bool = False, using: str | None = None) -> int:
    """Decide about so many changes at most, in one transaction; return about how many.

    The accounts are locked ``FOR NO KEY UPDATE`` in primary-key order: without ``wait`` those that somebody else holds
    are skipped. Changes that an account does not allow, or whose account is gone, are refused, the others applied by
    one `apply_many`; what each came to is written in the same transaction, so that a crash leaves all of it done or
    nothing. Where the database refuses to write one, all is taken back and decided again in a second transaction, in
    which the change that it refuses has failed and the others are decided without it.

    Right at READ COMMITTED. Raises `DeadlockDetected`, and above READ COMMITTED `SerializationFailure`, and what else
    `may_pass`.
    """
    using = using or router.db_for_write(model)
    with translated_errors(model=model):
        try:
            return _apply(model, size, wait=wait, apart=False, using=using)
        except REFUSALS as error:
            if may_pass(error):
                raise
        return _apply(model, size, wait=wait, apart=True, using=using)


def _apply(model: type[Any], size: int, *, wait: bool, apart: bool, using: str) -> int:
    with transaction.atomic(using=using):
        accounts, gone = _held(model, size, wait=wait, using=using)
        rows = list(_taken(_pending(model, using), accounts, gone, size))
        decided = (decide_apart if apart else decide)(model, rows, accounts, using=using)
        mark(model, decided, using=using)
        announce(model, [pk for pk, _ in decided], using=using)
    for pk, outcome in decided:
        if isinstance(outcome, ChangeFailed):
            logger.error("%s %s has failed: %s", model._meta.label, pk, outcome)
    return len(rows)


def drain(model: type[Any], *, size: int = 500, using: str | None = None) -> int:
    """Decide about everything that is in the queue, waiting for accounts that others hold; return about how many."""
    done = 0
    while now := apply_batch(model, size=size, using=using) or apply_batch(model, size=size, wait=True, using=using):
        done += now
    return done


def run(
    model: type[Any], stop: Event, *, size: int = 500, linger: float = 0.0, poll: float = 0.05, using: str | None = None
) -> int:
    """Apply batches until ``stop`` is set; return about how many changes it decided.

    Looks every ``poll`` seconds where nothing is to be done, and waits ``linger`` seconds for a batch to fill: larger
    batches cost less, and each change waits longer. A batch that has begun is ended before it stops. Where the
    connection is lost, the server is away, or a batch meets a deadlock, it tries again, after pauses that grow from 50
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
            if not may_pass(error):
                raise
            logger.warning("Queued changes are tried again in %.2f s: %s", pause, str(error).partition("\n")[0])
            connections[using].close_if_unusable_or_obsolete()
            stop.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            if not now:
                stop.wait(poll)
            done, pause = done + now, _FIRST_PAUSE
    return done


def _pending(model: type[Any], using: str) -> models.QuerySet[Any]:
    rows: models.QuerySet[Any] = model._base_manager.using(using)
    return rows.filter(state=model.State.PENDING).order_by("pk")


def _held(model: type[Any], size: int, *, wait: bool, using: str) -> tuple[dict[Any, Any], set[Any]]:
    """Lock the accounts of the next changes; return those that it got, and the keys of those that are gone."""
    rows = _pending(model, using).values_list("account_id", "target_id")[:size]
    wanted = {pk for pair in rows for pk in pair if pk is not None}
    accounts = model.account_model()._base_manager.using(using)
    features = connections[using].features
    skips = not wait and features.has_select_for_update_skip_locked
    locked = accounts.select_for_update(no_key=features.has_select_for_no_key_update, skip_locked=skips)
    held = {account.pk: account for account in locked.filter(pk__in=wanted).order_by("pk")}
    missing = wanted - held.keys()
    if skips and missing:
        # Rows that somebody holds can be read, even while he deletes them.
        missing.difference_update(accounts.filter(pk__in=missing).values_list("pk", flat=True))
    return held, missing


def _taken(pending: models.QuerySet[Any], accounts: dict[Any, Any], gone: set[Any], size: int) -> Iterator[Any]:
    """Yield the changes whose accounts are held, or gone, and that no earlier change of these is left behind."""
    rows = pending.filter(account_id__in=[*accounts, *gone])[:size].select_for_update()
    known, behind = accounts.keys() | gone, set[Any]()
    for change in rows:
        pks = {change.account_id, change.target_id} - {None}
        if pks <= known and not pks & behind:
            yield change
        else:
            behind |= pks
