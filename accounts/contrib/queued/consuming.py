"""Consumers: batches of queued changes, applied in one transaction each, by as many processes as one likes.

A consumer holds the rows of the accounts whose changes it applies, and reads these changes only then: so the changes of
an account are applied in order, whatever other consumers do. Rows that another consumer holds are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from threading import Event
from typing import Any

from django.db import connections, models, router, transaction

from accounts.abstract import reused
from accounts.contrib.queued.marking import mark
from accounts.engine.batches import Plan
from accounts.engine.changes import Applied, Change
from accounts.errors import AccountError
from django_lockstep.errors import translated_errors

__all__ = ["Decision", "apply_batch", "drain", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is to become of one queued change."""

    row: Any
    """The queued change."""
    parts: list[Change]
    """What it does to accounts."""
    outcome: Applied | AccountError | None
    """What its first part comes to, or what refuses the whole; None: an account is gone."""

    @property
    def new(self) -> list[Change]:
        """What is still to be applied."""
        return self.parts if isinstance(self.outcome, Applied) and not self.outcome.replayed else []


def apply_batch(model: type[Any], *, size: int = 500, wait: bool = False, using: str | None = None) -> int:
    """Decide about so many changes at most, in one transaction; return about how many.

    The accounts are locked ``FOR NO KEY UPDATE`` in primary-key order: without ``wait`` those that somebody else holds
    are skipped. Changes that an account does not allow, or whose account is gone, are refused, the others applied by
    one `apply_many`; what each came to is written in the same transaction, so that a crash leaves all of it done or
    nothing. Right at READ COMMITTED. Raises `DeadlockDetected`, and above READ COMMITTED `SerializationFailure`.
    """
    using = using or router.db_for_write(model)
    with translated_errors(model=model), transaction.atomic(using=using):
        accounts, gone = _held(model, size, wait=wait, using=using)
        taken = _taken(_pending(model, using), accounts, gone, size)
        decisions = list(_decided(taken, accounts, using))
        # As planned: the accounts are locked.
        model.account_model().apply_many([part for decision in decisions for part in decision.new], using=using)
        mark(model, [(decision.row.pk, decision.outcome) for decision in decisions], using=using)
    return len(decisions)


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
    batches cost less, and each change waits longer. A batch that has begun is ended before it stops.
    """
    using = using or router.db_for_write(model)
    done = 0
    while not stop.is_set():
        if linger and 0 < _pending(model, using)[:size].count() < size:
            stop.wait(linger)
        now = apply_batch(model, size=size, using=using)
        if not now:
            stop.wait(poll)
        done += now
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


def _decided(taken: Iterable[Any], accounts: dict[Any, Any], using: str) -> Iterator[Decision]:
    rows = [(row, row.changes()) for row in taken]
    plan = Plan(accounts, [part for _, parts in rows for part in parts], using=using)
    for row, parts in rows:
        is_gone = any(part.account not in accounts for part in parts)
        yield Decision(row=row, parts=parts, outcome=None if is_gone else _outcome(plan, parts))


def _outcome(plan: Plan, parts: list[Change]) -> Applied | AccountError:
    """Return what the first part comes to if all can be applied, otherwise what refuses them."""
    first = plan.decide(0, parts[0])
    if isinstance(first, AccountError) or len(parts) == 1:
        return first
    if first.replayed:
        # The key's entry says that it was a transfer, and not where it went.
        if plan.went_to(parts[0], parts[1].account):
            return first
        return reused(first.account, parts[0].idempotency_key, amount=first.amount)
    second = plan.decide(1, parts[1])
    if isinstance(second, AccountError):
        plan.take_back(first)
        return second
    return first
