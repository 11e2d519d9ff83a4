"""Changes of balances by the list: as callers give them, checked before any SQL, and what they came to."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from django.db import models

from accounts.abstract import checked_key, reused
from accounts.amounts import parse_signed_amount
from accounts.errors import IdempotencyKeyReused, InvalidAmount

__all__ = [
    "Applied",
    "Change",
    "distinct",
    "parse_changes",
    "require_same",
]


# Tuples, because making a dataclass for each of a thousand changes takes longer than sending them.
class Change(NamedTuple):
    """One change of one account."""

    account: Any
    """The account's primary key."""
    amount: Any
    """Signed and not zero, as a Decimal, an int or a decimal string: below zero is what is taken off."""
    idempotency_key: str | None = None
    """A second change of the account with this key changes nothing."""
    transfer: uuid.UUID | None = None
    """What the entries of one transfer have in common."""


class Applied(NamedTuple):
    """What one change came to."""

    account: Any
    """The account's primary key."""
    amount: Decimal
    """The signed amount."""
    balance_after: Decimal
    """The balance that it led to."""
    version_after: int
    """The version that it led to."""
    entry: Any
    """Primary key of its entry."""
    replayed: bool = False
    """Whether its idempotency key was used before: then nothing was changed, and the others tell of the first time."""


def parse_changes(model: type[models.Model], changes: Iterable[Change | tuple[Any, ...]]) -> list[Change]:
    """Return the changes with keys, amounts and transfers of the right types.

    Raises, naming the index, `InvalidAmount` or ``ValueError`` for what no change can be.
    """
    to_python = model._meta.pk.to_python
    return [_parsed(index, given, to_python) for index, given in enumerate(changes)]


def _parsed(index: int, given: Any, to_python: Any) -> Change:
    if not isinstance(given, tuple | list) or not 2 <= len(given) <= len(Change._fields):
        raise ValueError(f"Change {index} must be a Change or a pair of primary key and amount, not {given!r}")
    try:
        account, amount = to_python(given[0]), parse_signed_amount(given[1])
        if len(given) == 2:
            return Change(account, amount)
        change = Change(*given)
        return Change(account, amount, checked_key(change.idempotency_key), _transfer(change.transfer))
    except InvalidAmount as error:
        raise error.of_change(index, given[0]) from None


def _transfer(transfer: object) -> uuid.UUID | None:
    if transfer is not None and not isinstance(transfer, uuid.UUID):
        raise ValueError(f"transfer must be a UUID, not {transfer!r}")
    return transfer


def distinct(changes: list[Change]) -> tuple[dict[int, Change], dict[int, int]]:
    """Return the changes by their indexes but for those whose key came before; and of these, the index of the first.

    Raises `IdempotencyKeyReused` where the two are not the same change.
    """
    firsts: dict[tuple[Any, str], int] = {}
    repeats = dict(_repeats(changes, firsts))
    return {index: change for index, change in enumerate(changes) if index not in repeats}, repeats


def _repeats(changes: list[Change], firsts: dict[tuple[Any, str], int]) -> Iterator[tuple[int, int]]:
    for index, change in enumerate(changes):
        if change.idempotency_key is None:
            continue
        first = firsts.setdefault((change.account, change.idempotency_key), index)
        if first != index:
            try:
                require_same(change, amount=changes[first].amount, transfer=changes[first].transfer)
            except IdempotencyKeyReused as error:
                raise error.of_change(index, change.account) from None
            yield index, first


def require_same(change: Change, *, amount: Decimal, transfer: object) -> None:
    """Raise `IdempotencyKeyReused` unless the change is what its key was used for: this amount, in a transfer or not.

    A caller who tries again may have made another identifier for the transfer.
    """
    if change.amount != amount or (change.transfer is None) != (transfer is None):
        raise reused(change.account, change.idempotency_key, amount=amount)
