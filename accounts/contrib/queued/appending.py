"""Appending a change: one row that locks no account."""

from __future__ import annotations

from typing import Any

from accounts.abstract import key_reused_error
from accounts.engine import compiled_by

__all__ = ["append"]


@compiled_by("accounts.contrib.queued.compiled.append")
def append(change: Any, *, using: str) -> Any:
    """Insert the change, or find the one with its key; return it. Raises as `AbstractQueuedChange.deposit` does."""
    accounts = change.account_model()._base_manager.using(using)
    # The foreign keys have no constraint, which would lock the accounts' rows, so existence is checked here.
    for pk in {change.account_id, change.target_id} - {None}:
        accounts.only("pk").get(pk=pk)
    rows = type(change)._base_manager.using(using)
    key = {"account_id": change.account_id, "idempotency_key": change.idempotency_key}
    if change.idempotency_key is None:
        change.save(force_insert=True, using=using)
        return change
    first, made = rows.get_or_create(**key, defaults={"amount": change.amount, "target_id": change.target_id})
    if not made and (first.amount, first.target_id) != (change.amount, change.target_id):
        raise key_reused_error(change.account_id, change.idempotency_key, amount=first.changes()[0].amount)
    return first
