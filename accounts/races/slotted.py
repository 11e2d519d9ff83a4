"""A balance in slots: withdrawals from several slots, against withdrawals, deposits and a resize.

Requires ``accounts.contrib.slotted`` to be installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import F, Sum

from accounts.contrib.slotted.models import Slot, SlottedAccount
from django_lockstep.lab.races import Race
from django_lockstep.lab.scenario import ActorFunction, Scenario

__all__ = ["races"]


def races() -> Iterator[Race]:
    """Yield them; each begins with 60 in one slot and 40 in the other."""
    for name, text, actors, ends in (
        (
            "gather",
            "Two withdrawals from several slots, of which one is covered.",
            [gathering(80), gathering(70)],
            {20, 30},
        ),
        (
            "deposit",
            "A withdrawal that is covered only after a concurrent deposit.",
            [gathering(110), deposit],
            {10, 120},
        ),
        (
            "resize",
            "A withdrawal of the whole balance while it moves to other slots.",
            [gathering(100), resize],
            {0},
        ),
    ):
        yield _race(name, text, actors, ends, holds=True)
    yield _race(
        "sum-before",
        "The sum is read, then one slot is written: two withdrawals rely on the same money.",
        [sum_then_write(80, slot=0), sum_then_write(70, slot=1)],
        {20, 30},
        holds=False,
    )


def _race(name: str, text: str, actors: list[ActorFunction], ends: set[int], *, holds: bool) -> Race:
    scenario = Scenario(
        set_up=_open, actors=actors, invariant=lambda pk: _balance(pk) in ends, observe=lambda pk: str(_balance(pk))
    )
    return Race(name=f"slotted:{name}", text=text, scenario=scenario, holds=holds)


def _open() -> Any:
    users = get_user_model()
    user = users._base_manager.create(**{users.USERNAME_FIELD: "race"})
    account = SlottedAccount.open(user, size=2)
    for number, balance in enumerate((60, 40)):
        Slot.objects.filter(account=account, number=number).update(balance=balance)
    return account.pk


def _balance(pk: Any) -> Decimal:
    return SlottedAccount.objects.get(pk=pk).balance


def gathering(amount: int) -> ActorFunction:
    """Return a withdrawal in a transaction, where the connection's own slot is not tried first."""

    def withdraw(pk: object) -> None:
        with transaction.atomic():
            SlottedAccount.withdraw(pk, amount)

    return withdraw


def deposit(pk: Any) -> None:
    """Deposit into the second slot, as a connection with that slot would."""
    Slot.deposit(Slot.objects.get(account=pk, number=1).pk, 20)


def resize(pk: object) -> None:
    """Split the balance between three slots."""
    SlottedAccount.resize(pk, size=3)


def sum_then_write(amount: int, *, slot: int) -> ActorFunction:
    """Return a withdrawal as with sharded counters, which enforce no limit."""

    def withdraw(pk: Any) -> None:
        with transaction.atomic():
            # No lock on what the decision rests on: two withdrawals from different slots do not even wait for each
            # other.
            slots = Slot.objects.filter(account=pk)
            total = slots.aggregate(total=Sum("balance"))["total"]
            if total >= amount:
                # The slot itself may go below zero: only the sum counts here.
                slots.filter(number=slot).update(balance=F("balance") - amount, overdraft_limit=amount)

    return withdraw
