"""Changes the number of slots or the overdraft limit, while other sessions write."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

from django.db import models, transaction

from accounts.contrib.slotted.querysets import lock_slots
from accounts.contrib.slotted.spreading import split_evenly
from accounts.engine.batches import BalanceChange
from accounts.errors import InsufficientFunds
from django_lockstep.locking.rows import lock_row

__all__ = ["resize"]


def resize(model: type[Any], pk: object, *, size: int | None, overdraft_limit: Decimal | None, using: str) -> Any:
    """Lock the account and all its slots, then split balance and limit evenly between the slots that it keeps."""
    slot_model = model._meta.get_field("slots").related_model
    slots = slot_model._base_manager.using(using)
    with transaction.atomic(using=using):
        # The account row first: it serializes resizes. Sessions that write slots do not lock it.
        account = lock_row(model, pk, using=using)
        held = lock_slots(slots.filter(account=pk))
        # Under the locks of all slots: no deposit can change one of them before it is written below.
        balance = sum((slot.balance for slot in held), Decimal(0))
        limit = sum((slot.overdraft_limit for slot in held), Decimal(0)) if overdraft_limit is None else overdraft_limit
        if balance < -limit:
            raise InsufficientFunds(
                f"Slotted account {pk!r} has {balance}: below an overdraft limit of {limit}",
                balance=balance,
                overdraft_limit=limit,
                amount=Decimal(0),
            )
        account.size = account.size if size is None else size
        balances, limits = (split_evenly(each, account.size) for each in (balance, limit))
        made = [slot_model(account=account, number=number, version=1) for number in range(len(held), account.size)]
        if made:
            slots.bulk_create(made)
            # Read and lock again: not every database returns the keys of new rows.
            held = lock_slots(slots.filter(account=pk))
        _spread(slots, held, balances, limits)
        account.save(using=using, update_fields=["size"])
    return account


def _spread(slots: models.QuerySet[Any], held: list[Any], balances: list[Decimal], limits: list[Decimal]) -> None:
    """Give each slot its share; slots without a share are emptied."""
    none = [Decimal("0.00")] * (len(held) - len(balances))
    goals = list(zip(held, balances + none, limits + none, strict=True))
    # Limits are raised, then money is moved, then limits are lowered: no slot is below its limit at any time.
    for slot, _, limit in goals:
        if limit > slot.overdraft_limit:
            slots.filter(pk=slot.pk).update(overdraft_limit=limit)
    moved = uuid.uuid4()
    changes = [
        BalanceChange(slot.pk, balance - slot.balance, transfer=moved)
        for slot, balance, _ in goals
        if balance != slot.balance
    ]
    slots.model.apply_many(changes, using=slots.db)
    for slot, _, limit in goals:
        if limit < slot.overdraft_limit:
            slots.filter(pk=slot.pk).update(overdraft_limit=limit)
