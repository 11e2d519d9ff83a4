"""Idempotency keys of slotted accounts: an operation that was done before is found, whichever slots it wrote.

The entries have the key too, but each slot keeps its own: only `SlotKey` is one row for the account.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from django.db import connections, models, transaction

from accounts.abstract import entries_of, reused
from accounts.engine.changes import Applied
from django_lockstep.locking.transactions import commits_each_statement

__all__ = ["once"]


def once(
    model: type[Any],
    pk: Any,
    amount: Decimal,
    perform: Callable[[bool], list[Applied]],
    *,
    key: str | None,
    target: Any = None,
    using: str,
) -> list[Applied]:
    """Perform the operation, or return what it came to when the key was used for it before.

    ``perform`` is told whether the transaction is its own. Raises `IdempotencyKeyReused` where the key was used for
    another signed ``amount`` or ``target``.
    """
    alone = commits_each_statement(connections[using])
    if key is None:
        return perform(alone)
    keys = model._meta.get_field("keys").related_model._base_manager.using(using)
    with transaction.atomic(using=using):
        # First of all: whoever else has this key waits here, and finds what was done.
        kept, is_new = keys.get_or_create(account_id=pk, idempotency_key=key, defaults={"target_id": target})
        return perform(alone) if is_new else _repeated(model, kept, amount, target=target, using=using)


def _repeated(model: type[Any], kept: Any, amount: Decimal, *, target: Any, using: str) -> list[Applied]:
    entries = entries_of(model._meta.get_field("slots").related_model, using)
    own = list(entries.filter(account__account=kept.account_id, idempotency_key=kept.idempotency_key).order_by("pk"))
    recorded = sum((entry.amount for entry in own), Decimal(0))
    if (recorded, kept.target_id) != (amount, target):
        raise reused(kept.account_id, kept.idempotency_key, amount=recorded)
    arrivals = [] if target is None else [_arrival(entries, own[0], target)]
    return [
        Applied(entry.account_id, entry.amount, entry.balance_after, entry.version_after, entry.pk, replayed=True)
        for entry in (*own, *arrivals)
    ]


def _arrival(entries: models.QuerySet[Any], first: Any, target: Any) -> Any:
    """Return the target's entry of a transfer, which was written right after this one."""
    return entries.filter(account__account=target, transfer=first.transfer, pk__gt=first.pk).earliest("pk")
