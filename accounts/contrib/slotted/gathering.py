"""Withdrawals that one slot does not cover: slots locked in primary-key order, as many as it takes."""

from __future__ import annotations

import uuid
from contextlib import AbstractContextManager, nullcontext, suppress
from decimal import Decimal
from typing import Any

from django.db import models, transaction
from django.db.models import F, Q

from accounts.contrib.slotted.querysets import locked
from accounts.contrib.slotted.spreading import size_of, slot_here, try_add
from accounts.engine.changes import Applied, Change
from accounts.errors import InsufficientFunds

__all__ = ["gather", "withdraw"]


class _Short(Exception):
    """The slots that were locked do not cover the amount, and others might."""


class _NotCovered(Exception):
    """The connection's own slot does not cover the amount."""


def withdraw(
    model: type[Any], pk: Any, amount: Decimal, *, key: str | None = None, alone: bool, using: str
) -> list[Applied]:
    """Take the amount off the connection's own slot, or gather it; ``alone``: no transaction of the caller's is open.

    In one, the attempt would lock a slot that the gathering, or what the caller did before, wants in another order.
    """
    if alone:
        # With a key there is a transaction: a savepoint gives back the lock of a slot that did not do.
        savepoint: AbstractContextManager[None] = nullcontext() if key is None else transaction.atomic(using=using)
        with suppress(_NotCovered), savepoint:
            applied = try_add(model, pk, -amount, key=key, using=using)
            if applied is None:
                raise _NotCovered
            return [applied]
    return gather(model, pk, amount, key=key, using=using)


def gather(
    model: type[Any], pk: Any, amount: Decimal, *, key: str | None = None, target: Any = None, using: str
) -> list[Applied]:
    """Take the amount off as many slots as it takes, and add it to one of the target's, if there is a target.

    First it locks the slots that seem to be needed; where others emptied them meanwhile, it lets go and locks all, as
    often as it takes to have all that there are. Right at READ COMMITTED: whatever moves between slots, moves under
    both slots' locks.
    """
    size_of(model, pk, using=using, now=True)
    slots = model._meta.get_field("slots").related_model._base_manager.using(using)
    goal = None if target is None else slot_here(model, target, using=using).pk
    below = _needed(slots.filter(account=pk), amount)
    while True:
        try:
            with transaction.atomic(using=using):
                return _gather(slots, pk, amount, key=key, below=below, goal=goal)
        except _Short:
            below = None


def _needed(slots: models.QuerySet[Any], amount: Decimal) -> int | None:
    """Return below which number the slots cover the amount, by what they have now; None if all together do not."""
    for number, available in slots.order_by("number").values_list("number", F("balance") + F("overdraft_limit")):
        amount -= available
        if amount <= 0:
            return int(number) + 1
    return None


def _gather(
    slots: models.QuerySet[Any], pk: Any, amount: Decimal, *, key: str | None, below: int | None, goal: Any
) -> list[Applied]:
    wanted = Q(account=pk) if below is None else Q(account=pk, number__lt=below)
    # One statement, so that slots of two accounts are locked in one order.
    own = [slot for slot in locked(slots.filter(wanted | Q(pk=goal))) if slot.account_id == pk]
    parts = _parts(own, amount)
    if parts is None:
        # A slot that was made since the statement began is not among them, though money may have moved there.
        if below is not None or slots.filter(account=pk).exclude(pk__in=[slot.pk for slot in own]).exists():
            raise _Short
        raise _not_enough(own, pk, amount)
    transfer = uuid.uuid4() if len(parts) > 1 or goal is not None else None
    changes = [Change(slot, part, key, transfer) for slot, part in parts.items()]
    if goal is not None:
        changes.append(Change(goal, amount, None, transfer))
    done: list[Applied] = slots.model.apply_many(changes, using=slots.db)
    return done


def _parts(slots: list[Any], amount: Decimal) -> dict[Any, Decimal] | None:
    """Return what each slot gives, below zero; None if all together do not cover the amount."""
    parts = {}
    for slot in slots:
        part = min(amount, slot.balance + slot.overdraft_limit)
        if part > 0:
            parts[slot.pk] = -part
            amount -= part
    return None if amount > 0 else parts


def _not_enough(slots: list[Any], pk: Any, amount: Decimal) -> InsufficientFunds:
    balance, limit = (sum(getattr(slot, name) for slot in slots) for name in ("balance", "overdraft_limit"))
    return InsufficientFunds(
        f"Slotted account {pk!r} has {balance} and an overdraft limit of {limit}: not enough for {amount}",
        balance=balance,
        overdraft_limit=limit,
        amount=amount,
    )
