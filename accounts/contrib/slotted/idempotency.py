"""Idempotency keys of slotted accounts, which find an earlier operation whichever slots it wrote.

Entries have the key too, but it is unique only for a slot: `SlotKey` is unique for the account.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from django.db import connections, models, transaction

from accounts.abstract import entries_of, key_reused_error
from accounts.engine.batches import AppliedChange
from django_lockstep.locking.transactions import commits_each_statement

__all__ = ["run_once"]


def run_once(
    model: type[Any],
    pk: object,
    amount: Decimal,
    perform: Callable[[bool], list[AppliedChange]],
    *,
    key: str | None,
    target: object = None,
    using: str,
) -> list[AppliedChange]:
    """Perform the operation, or return its first result if the key was used before.

    The argument of ``perform`` is whether the caller has no transaction open. Raises `IdempotencyKeyReused` where the
    key was used for another signed ``amount`` or ``target``.
    """
    autocommit = commits_each_statement(connections[using])
    if key is None:
        return perform(autocommit)
    keys = model._meta.get_field("keys").related_model._base_manager.using(using)
    with transaction.atomic(using=using):
        # Before any slot is locked: a concurrent call with this key waits here, and then finds the result.
        kept, is_new = keys.get_or_create(account_id=pk, idempotency_key=key, defaults={"target_id": target})
        return perform(autocommit) if is_new else _replay(model, kept, amount, target=target, using=using)


def _replay(model: type[Any], kept: Any, amount: Decimal, *, target: object, using: str) -> list[AppliedChange]:
    entries = entries_of(model._meta.get_field("slots").related_model, using)
    own = list(entries.filter(account__account=kept.account_id, idempotency_key=kept.idempotency_key).order_by("pk"))
    recorded = sum((entry.amount for entry in own), Decimal(0))
    if (recorded, kept.target_id) != (amount, target):
        raise key_reused_error(kept.account_id, kept.idempotency_key, amount=recorded)
    arrivals = [] if target is None else [_counter_entry(entries, own[0], target)]
    return [
        AppliedChange(entry.account_id, entry.amount, entry.balance_after, entry.version_after, entry.pk, replayed=True)
        for entry in (*own, *arrivals)
    ]


def _counter_entry(entries: models.QuerySet[Any], first: Any, target: object) -> Any:
    """Return the target's entry of the transfer, which was written right after this one."""
    return entries.filter(account__account=target, transfer=first.transfer, pk__gt=first.pk).earliest("pk")
