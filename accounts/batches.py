"""Many changes of many accounts, all or nothing: what `Account.apply_many` takes, does and returns."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from django.db import transaction

from accounts.abstract import AbstractBaseAccount
from accounts.amounts import parse_signed_amount
from accounts.engine import compilable
from accounts.entries import key_reused_error, validate_key
from accounts.errors import AccountError, InvalidAmount
from django_lockstep.errors import translated_errors
from django_lockstep.locking.rows import lock_rows


# Tuples, because making a dataclass for each of a thousand changes takes longer than sending them.
class BalanceChange(NamedTuple):
    """One change of one account."""

    account: Any
    """The account's primary key."""
    amount: Any
    """Signed and not zero, as a Decimal, an int or a decimal string; negative for a withdrawal."""
    idempotency_key: str | None = None
    """A second change of the account with this key changes nothing."""
    transfer: uuid.UUID | None = None
    """The same identifier for all entries of one transfer."""


class AppliedChange(NamedTuple):
    """The result of one change."""

    account: Any
    """The account's primary key."""
    amount: Decimal
    """The signed amount."""
    balance_after: Decimal
    """The account's balance after it."""
    version_after: int
    """The account's version after it."""
    entry: Any
    """Primary key of its entry."""
    replayed: bool = False
    """Whether its idempotency key was used before: nothing was changed, the other fields are the first result's."""


ChangeLike: TypeAlias = BalanceChange | tuple[Any, Any]


def parse_changes(model: type[AbstractBaseAccount], changes: Iterable[ChangeLike]) -> list[BalanceChange]:
    """Return the changes with keys, amounts and transfers of the right types.

    Raises `InvalidAmount` or ``ValueError``, naming the index of the invalid change.
    """
    return [_parse_change(index, change, model.parse_key) for index, change in enumerate(changes)]


def _parse_change(index: int, change: object, parse_key: Callable[[object], Any]) -> BalanceChange:
    if not isinstance(change, tuple | list) or not 2 <= len(change) <= len(BalanceChange._fields):
        raise ValueError(f"Change {index} must be a BalanceChange or a pair of primary key and amount, not {change!r}")
    try:
        account, amount = parse_key(change[0]), parse_signed_amount(change[1])
    except InvalidAmount as error:
        raise error.of_change(index, change[0]) from None
    if len(change) == 2:
        return BalanceChange(account, amount)
    _, _, key, transfer = BalanceChange(*change)
    if transfer is not None and not isinstance(transfer, uuid.UUID):
        raise ValueError(f"transfer must be a UUID, not {transfer!r}")
    return BalanceChange(account, amount, validate_key(key), transfer)


@compilable
def apply_changes(model: type[AbstractBaseAccount], changes: list[BalanceChange], *, using: str) -> list[AppliedChange]:
    """Apply the changes, all or none, each with its entry; return the results in the same order.

    All accounts are locked ``FOR NO KEY UPDATE`` in primary-key order. Changes of one account apply in the order given,
    and each intermediate balance must respect the overdraft limit. A change whose ``idempotency_key`` was used before,
    in the database or in the list, is skipped, and its result says so. Opens a transaction or joins the caller's; waits
    for the rows without a time limit.

    `Account.apply_many` takes `BalanceChange` or pairs of a primary key and a signed amount. Raises `InvalidAmount` or
    ``ValueError`` before any SQL, ``DoesNotExist``, `InsufficientFunds`, `IdempotencyKeyReused`, each with the
    ``index`` of the change, `DeadlockDetected`, and above READ COMMITTED `SerializationFailure`.
    """
    pks = sorted({change.account for change in changes})
    with translated_errors(model=model, pk=pks), transaction.atomic(using=using):
        # Primary-key order, as in every method that locks several rows: batches never deadlock with each other.
        accounts = {account.pk: account for account in lock_rows(model, pks, using=using)}
        results = []
        for index, change in enumerate(changes):
            try:
                results.append(_apply(accounts[change.account], change, using=using))
            except AccountError as error:
                raise error.of_change(index, change.account) from None
        return results


def _apply(account: AbstractBaseAccount, change: BalanceChange, *, using: str) -> AppliedChange:
    pk, amount, key, transfer = change
    # Under the account's lock: no other session can use the key before COMMIT. Also finds earlier changes of the list.
    first = account.entry_of(key)
    if first:
        # The identifiers of transfers are not compared: a caller that retries may generate a new one.
        if first.amount != amount or (first.transfer is None) != (transfer is None):
            raise key_reused_error(pk, key, amount=first.amount)
        return AppliedChange(pk, amount, first.balance_after, first.version_after, first.pk, replayed=True)
    account.book(amount)
    account.save(using=using)
    entry = account.record(amount, key, transfer=transfer)
    return AppliedChange(pk, amount, account.balance, account.version, entry.pk)
