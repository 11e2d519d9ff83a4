"""Many changes of many accounts, all or nothing: `Account.apply_many`, what it takes and what it returns."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from decimal import Decimal
from typing import Any, NamedTuple

from django.db import models, router, transaction
from django.db.models import F

from accounts.abstract import AbstractBaseAccount, entries_of, key_reused_error, validate_key
from accounts.amounts import parse_signed_amount
from accounts.engine import compiled_by
from accounts.engine.obstacles import customizations, has_entry_receivers, has_save_receivers
from accounts.errors import AccountError, IdempotencyKeyReused, InvalidAmount
from django_lockstep.errors import StaleVersionError, translated_errors
from django_lockstep.locking.rows import lock_rows
from django_lockstep.locking.writes import auto_now_values

__all__ = ["AppliedChange", "BalanceChange", "Projection", "apply_many"]


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


def parse_changes(model: type[models.Model], changes: Iterable[BalanceChange | tuple[Any, ...]]) -> list[BalanceChange]:
    """Return the changes with keys, amounts and transfers of the right types.

    Raises `InvalidAmount` or ``ValueError``, naming the index of the invalid change.
    """
    to_python = model._meta.pk.to_python
    return [_parse_change(index, given, to_python) for index, given in enumerate(changes)]


def _parse_change(index: int, given: object, to_python: Any) -> BalanceChange:
    if not isinstance(given, tuple | list) or not 2 <= len(given) <= len(BalanceChange._fields):
        raise ValueError(f"Change {index} must be a BalanceChange or a pair of primary key and amount, not {given!r}")
    try:
        account, amount = to_python(given[0]), parse_signed_amount(given[1])
        if len(given) == 2:
            return BalanceChange(account, amount)
        change = BalanceChange(*given)
        return BalanceChange(account, amount, validate_key(change.idempotency_key), _check_transfer(change.transfer))
    except InvalidAmount as error:
        raise error.of_change(index, given[0]) from None


def _check_transfer(transfer: object) -> uuid.UUID | None:
    if transfer is not None and not isinstance(transfer, uuid.UUID):
        raise ValueError(f"transfer must be a UUID, not {transfer!r}")
    return transfer


def split_repeats(changes: list[BalanceChange]) -> tuple[dict[int, BalanceChange], dict[int, int]]:
    """Return the changes to apply, by index; and for those that repeat a key of the list, the index of the first.

    Raises `IdempotencyKeyReused` where a repeated key belongs to a different change.
    """
    firsts: dict[tuple[Any, str], int] = {}
    repeats = dict(_repeats(changes, firsts))
    return {index: change for index, change in enumerate(changes) if index not in repeats}, repeats


def _repeats(changes: list[BalanceChange], firsts: dict[tuple[Any, str], int]) -> Iterator[tuple[int, int]]:
    for index, change in enumerate(changes):
        if change.idempotency_key is None:
            continue
        first = firsts.setdefault((change.account, change.idempotency_key), index)
        if first != index:
            try:
                require_same_change(change, amount=changes[first].amount, transfer=changes[first].transfer)
            except IdempotencyKeyReused as error:
                raise error.of_change(index, change.account) from None
            yield index, first


def require_same_change(change: BalanceChange, *, amount: Decimal, transfer: object) -> None:
    """Raise `IdempotencyKeyReused` unless the change has this amount, and is part of a transfer if the first one was.

    The identifiers of the transfers are not compared: a caller that retries may generate a new one.
    """
    if change.amount != amount or (change.transfer is None) != (transfer is None):
        raise key_reused_error(change.account, change.idempotency_key, amount=amount)


def apply_many(
    model: type[AbstractBaseAccount], changes: Iterable[BalanceChange | tuple[Any, ...]], *, using: str | None = None
) -> list[AppliedChange]:
    given = parse_changes(model, changes)
    # Repeats within the list are separated first: the unique constraint would refuse the whole statement.
    fresh, repeats = split_repeats(given)
    using = using or router.db_for_write(model)
    done = _apply_new(model, fresh, using=using) if fresh else {}
    for index, first in repeats.items():
        done[index] = done[first]._replace(replayed=True)
    return [done[index] for index in range(len(given))]


@compiled_by("accounts.engine.compiled.batches.apply_new")
def _apply_new(
    model: type[AbstractBaseAccount], changes: dict[int, BalanceChange], *, using: str
) -> dict[int, AppliedChange]:
    """Lock the accounts, compute every result, then write: nothing is written if one change is refused."""
    # Primary-key order, as in every method that locks several rows: batches never deadlock with each other.
    pks = sorted({change.account for change in changes.values()})
    with translated_errors(model=model, pk=pks), transaction.atomic(using=using):
        accounts = {row.pk: row for row in lock_rows(model, pks, using=using)}
        plan = Projection(accounts, changes.values(), using=using)
        done = {index: _require_applied(plan.decide(index, change)) for index, change in changes.items()}
        new = {index: outcome for index, outcome in done.items() if not outcome.replayed}
        heard = has_entry_receivers(model.entry_model()) or has_save_receivers(model)
        write = _save_each if heard or customizations(model) else _write_together
        write(accounts, [(changes[index], outcome) for index, outcome in new.items()], using)
        entries = _entry_keys(model, new.values(), using)
    return done | {
        index: outcome._replace(entry=entries[outcome.account, outcome.version_after]) for index, outcome in new.items()
    }


def _require_applied(outcome: AppliedChange | AccountError) -> AppliedChange:
    if isinstance(outcome, AccountError):
        raise outcome
    return outcome


class Projection:
    """Computes the results of changes, one after the other, without writing.

    ``accounts`` are the locked rows by primary key; ``changes`` are all that `decide` will be called with.
    """

    def __init__(
        self, accounts: Mapping[Any, AbstractBaseAccount], changes: Iterable[BalanceChange], *, using: str
    ) -> None:
        # Copies, because the caller still needs the balances and versions that were read.
        self._accounts = {pk: copy(account) for pk, account in accounts.items()}
        self._entries_by_key = _entries_by_key(accounts, changes, using)

    def decide(self, index: int, change: BalanceChange) -> AppliedChange | AccountError:
        """Return the result of the change after the previous ones, without an entry yet; or the error that refuses it.

        A refused change has no effect on the next ones.
        """
        pk, amount, key, _ = change
        first = self._entries_by_key.get((pk, key)) if key else None
        account = self._accounts[pk]
        try:
            if first is not None:
                require_same_change(change, amount=first.amount, transfer=first.transfer)
                return AppliedChange(pk, amount, first.balance_after, first.version_after, first.pk, replayed=True)
            account.balance = account.balance_after(amount)
        except AccountError as error:
            return error.of_change(index, pk)
        # Each change counts, also several of one account, as if they had been made one after the other.
        account.version += 1
        return AppliedChange(pk, amount, account.balance, account.version, None)

    def was_sent_to(self, change: BalanceChange, target: object) -> bool:
        """Whether the earlier transfer with the change's key had this target."""
        return self._entries_by_key[change.account, change.idempotency_key].counter_entry(target) is not None

    def undo(self, outcome: AppliedChange) -> None:
        """Revert the last result for the account."""
        account = self._accounts[outcome.account]
        account.balance, account.version = account.balance - outcome.amount, account.version - 1


def _entries_by_key(
    accounts: Mapping[Any, AbstractBaseAccount], changes: Iterable[BalanceChange], using: str
) -> dict[tuple[Any, str | None], Any]:
    """Return the existing entries with one of the changes' idempotency keys, by account and key."""
    keys = {change.idempotency_key for change in changes if change.idempotency_key is not None}
    if not keys or not accounts:
        return {}
    model = type(next(iter(accounts.values())))
    # Read under the accounts' locks: a key that is not found now cannot be used by another session before COMMIT.
    entries = entries_of(model, using).filter(account__pk__in=[*accounts], idempotency_key__in=keys)
    return {(entry.account_pk, entry.idempotency_key): entry for entry in entries.annotate(account_pk=F("account__pk"))}


AppliedPairs = list[tuple[BalanceChange, AppliedChange]]


def _save_each(accounts: Mapping[Any, AbstractBaseAccount], decided: AppliedPairs, using: str) -> None:
    """Call ``save()`` and ``record()`` for each change, because the project overrides them or listens to signals."""
    for change, outcome in decided:
        account = accounts[change.account]
        account.balance, account.entry_count = outcome.balance_after, account.entry_count + 1
        account.save(using=using)
        account.record(change.amount, using=using, idempotency_key=change.idempotency_key, transfer=change.transfer)


def _write_together(accounts: Mapping[Any, AbstractBaseAccount], decided: AppliedPairs, using: str) -> None:
    """UPDATE each account once, in primary-key order, and INSERT all entries."""
    # The last outcome of each account has its final balance.
    for pk, outcome in sorted({outcome.account: outcome for _, outcome in decided}.items()):
        _update_account(accounts[pk], outcome, using)
    rows = [_build_entry(accounts[change.account], change, outcome) for change, outcome in decided]
    if rows:
        entries_of(type(next(iter(accounts.values()))), using).bulk_create(rows)


def _update_account(account: AbstractBaseAccount, outcome: AppliedChange, using: str) -> None:
    model = type(account)
    # The row is locked, but databases without row locks (SQLite) need the version in the WHERE.
    rows = model._base_manager.using(using).filter(pk=account.pk, version=account.version)
    count = account.entry_count + outcome.version_after - account.version
    changes = {"balance": outcome.balance_after, "version": outcome.version_after, "entry_count": count}
    if not rows.update(**auto_now_values(model), **changes):
        raise StaleVersionError(model=model, pk=account.pk, expected=account.version, target=account)


def _build_entry(account: Any, change: BalanceChange, outcome: AppliedChange) -> models.Model:
    model = account.entry_model()
    link = model._meta.get_field("account")
    entry: models.Model = model(
        **{link.attname: getattr(account, link.target_field.attname)},
        amount=change.amount,
        balance_after=outcome.balance_after,
        version_after=outcome.version_after,
        idempotency_key=change.idempotency_key,
        transfer=change.transfer,
    )
    return entry


def _entry_keys(
    model: type[AbstractBaseAccount], new: Iterable[AppliedChange], using: str
) -> dict[tuple[Any, int], Any]:
    """Return the new entries' keys, by account and version: not every database returns them from bulk_create()."""
    versions = {(outcome.account, outcome.version_after) for outcome in new}
    wanted = {"account__pk__in": {pk for pk, _ in versions}, "version_after__in": {version for _, version in versions}}
    rows = entries_of(model, using).filter(**wanted).values_list("account__pk", "version_after", "pk")
    return {(pk, version): entry for pk, version, entry in rows}
