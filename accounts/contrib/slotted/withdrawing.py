"""Withdrawals, also those that one slot does not cover: as many slots as needed are locked in primary-key order."""

from __future__ import annotations

import uuid
from contextlib import AbstractContextManager, nullcontext, suppress
from decimal import Decimal
from typing import Any

from django.db import models, transaction
from django.db.models import F, Q

from accounts.contrib.slotted.querysets import lock_slots
from accounts.contrib.slotted.spreading import size_of, slot_for, try_add
from accounts.engine.batches import AppliedChange, BalanceChange
from accounts.errors import InsufficientFunds

__all__ = ["gather", "withdraw"]


class _MoreSlotsNeeded(Exception):
    """The locked slots do not cover the amount, but with the others it may be covered."""


class _NotCovered(Exception):
    """The connection's own slot does not cover the amount."""


def withdraw(
    model: type[Any], pk: object, amount: Decimal, *, key: str | None = None, autocommit: bool, using: str
) -> list[AppliedChange]:
    """Subtract the amount from the connection's slot, or from several; ``autocommit``: no transaction is open.

    Inside a caller's transaction, the attempt on one slot would lock out of order: `gather` may then need slots before
    it, which another session has locked.
    """
    if autocommit:
        # With a key there is a transaction: rolling back to a savepoint releases the lock of a slot that is not enough.
        savepoint: AbstractContextManager[None] = nullcontext() if key is None else transaction.atomic(using=using)
        with suppress(_NotCovered), savepoint:
            applied = try_add(model, pk, -amount, key=key, using=using)
            if applied is None:
                raise _NotCovered
            return [applied]
    return gather(model, pk, amount, key=key, using=using)


def gather(
    model: type[Any], pk: object, amount: Decimal, *, key: str | None = None, target: object = None, using: str
) -> list[AppliedChange]:
    """Subtract the amount from as many slots as needed, and add it to one of the target's slots, if there is a target.

    It first locks the slots that seem to be needed. If other sessions emptied them in the meantime, it releases them
    and locks all slots, repeatedly if new slots appear. Correct at READ COMMITTED, because money moves between slots
    only under the locks of both.
    """
    size_of(model, pk, using=using, now=True)  # raises DoesNotExist for an account that does not exist
    slots = model._meta.get_field("slots").related_model._base_manager.using(using)
    goal = None if target is None else slot_for(model, target, using=using).pk
    below = _needed(slots.filter(account=pk), amount)
    while True:
        try:
            with transaction.atomic(using=using):
                return _gather(slots, pk, amount, key=key, below=below, goal=goal)
        except _MoreSlotsNeeded:
            below = None


def _needed(slots: models.QuerySet[Any], amount: Decimal) -> int | None:
    """Return how many slots, by number, seem to cover the amount, read without locks; None if all together do not."""
    for number, available in slots.order_by("number").values_list("number", F("balance") + F("overdraft_limit")):
        amount -= available
        if amount <= 0:
            return int(number) + 1
    return None


def _gather(
    slots: models.QuerySet[Any], pk: object, amount: Decimal, *, key: str | None, below: int | None, goal: object
) -> list[AppliedChange]:
    wanted = Q(account=pk) if below is None else Q(account=pk, number__lt=below)
    # One statement for both accounts, so that all slots are locked in one order.
    own = [slot for slot in lock_slots(slots.filter(wanted | Q(pk=goal))) if slot.account_id == pk]
    parts = _parts(own, amount)
    if parts is None:
        # Money may have moved to a slot that was created after the locking statement took its snapshot.
        if below is not None or slots.filter(account=pk).exclude(pk__in=[slot.pk for slot in own]).exists():
            raise _MoreSlotsNeeded
        raise _insufficient_funds(own, pk, amount)
    transfer = uuid.uuid4() if len(parts) > 1 or goal is not None else None
    changes = [BalanceChange(slot, part, key, transfer) for slot, part in parts.items()]
    if goal is not None:
        changes.append(BalanceChange(goal, amount, None, transfer))
    done: list[AppliedChange] = slots.model.apply_many(changes, using=slots.db)
    return done


def _parts(slots: list[Any], amount: Decimal) -> dict[Any, Decimal] | None:
    """Return the negative amount for each slot; None if all together do not cover the amount."""
    parts = {}
    for slot in slots:
        part = min(amount, slot.balance + slot.overdraft_limit)
        if part > 0:
            parts[slot.pk] = -part
            amount -= part
    return None if amount > 0 else parts


def _insufficient_funds(slots: list[Any], pk: object, amount: Decimal) -> InsufficientFunds:
    balance, limit = (sum(getattr(slot, name) for slot in slots) for name in ("balance", "overdraft_limit"))
    return InsufficientFunds(
        f"Slotted account {pk!r} has {balance} and an overdraft limit of {limit}: not enough for {amount}",
        balance=balance,
        overdraft_limit=limit,
        amount=amount,
    )
