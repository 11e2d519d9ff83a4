"""Many changes of many accounts, all or nothing: `Account.apply_many`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any

from django.db import models, router, transaction
from django.db.models import F

from accounts.abstract import entries_of
from accounts.engine import compiled_by
from accounts.engine.changes import Applied, Change, distinct, parse_changes, require_same
from accounts.engine.obstacles import customisations, has_listeners, saves_are_heard
from accounts.errors import AccountError
from django_lockstep.errors import StaleVersionError, translated_errors
from django_lockstep.locking.rows import lock_rows
from django_lockstep.locking.writes import auto_now_values

__all__ = ["Plan", "apply_many"]


def apply_many(
    model: type[Any], changes: Iterable[Change | tuple[Any, ...]], *, using: str | None = None
) -> list[Applied]:
    """Do what `accounts.models.AbstractAccount.apply_many` promises."""
    given = parse_changes(model, changes)
    fresh, repeats = distinct(given)
    using = using or router.db_for_write(model)
    done = _apply_new(model, fresh, using=using) if fresh else {}
    for index, first in repeats.items():
        done[index] = done[first]._replace(replayed=True)
    return [done[index] for index in range(len(given))]


@compiled_by("accounts.engine.compiled.batches.apply_new")
def _apply_new(model: type[Any], changes: dict[int, Change], *, using: str) -> dict[int, Applied]:
    """Lock the accounts, decide about each change, then write."""
    pks = sorted({change.account for change in changes.values()})
    with translated_errors(model=model, pk=pks), transaction.atomic(using=using):
        accounts = {row.pk: row for row in lock_rows(model, pks, using=using)}
        plan = Plan(accounts, changes.values(), using=using)
        done = {index: _accepted(plan.decide(index, change)) for index, change in changes.items()}
        new = {index: outcome for index, outcome in done.items() if not outcome.replayed}
        heard = has_listeners(model.entry_model()) or saves_are_heard(model)
        write = _one_by_one if heard or customisations(model) else _all_at_once
        write(accounts, [(changes[index], outcome) for index, outcome in new.items()], using)
        entries = _entries_of(model, new.values(), using)
    return done | {
        index: outcome._replace(entry=entries[outcome.account, outcome.version_after]) for index, outcome in new.items()
    }


def _accepted(outcome: Applied | AccountError) -> Applied:
    if isinstance(outcome, AccountError):
        raise outcome
    return outcome


class Plan:
    """What changes will come to, one after the other; decides, and writes nothing.

    ``accounts`` are the rows by their keys, locked; ``changes`` all that will be asked about.
    """

    def __init__(self, accounts: Mapping[Any, Any], changes: Iterable[Change], *, using: str) -> None:
        self._accounts = {pk: copy(account) for pk, account in accounts.items()}
        self._recorded = _recorded(accounts, changes, using)

    def decide(self, index: int, change: Change) -> Applied | AccountError:
        """Return what the change comes to after those decided before, with no entry yet; or what it is refused with.

        A refused change counts for nothing in those that follow.
        """
        pk, amount, key, _ = change
        first = self._recorded.get((pk, key)) if key else None
        account = self._accounts[pk]
        try:
            if first is not None:
                require_same(change, amount=first.amount, transfer=first.transfer)
                return Applied(pk, amount, first.balance_after, first.version_after, first.pk, replayed=True)
            account.balance = account.balance_after(amount)
        except AccountError as error:
            return error.of_change(index, pk)
        account.version += 1
        return Applied(pk, amount, account.balance, account.version, None)

    def went_to(self, change: Change, target: Any) -> bool:
        """Whether the transfer that the change's key was used for went to this account."""
        return self._recorded[change.account, change.idempotency_key].arrival_at(target) is not None

    def take_back(self, outcome: Applied) -> None:
        """Forget the last change of the account that was decided."""
        account = self._accounts[outcome.account]
        account.balance, account.version = account.balance - outcome.amount, account.version - 1


def _recorded(accounts: Mapping[Any, Any], changes: Iterable[Change], using: str) -> dict[tuple[Any, str | None], Any]:
    """Return the entries that have one of the changes' keys, by account and key."""
    keys = {change.idempotency_key for change in changes if change.idempotency_key is not None}
    if not keys or not accounts:
        return {}
    model = type(next(iter(accounts.values())))
    entries = entries_of(model, using).filter(account__pk__in=[*accounts], idempotency_key__in=keys)
    return {(entry.account_pk, entry.idempotency_key): entry for entry in entries.annotate(account_pk=F("account__pk"))}


Decided = list[tuple[Change, Applied]]


def _one_by_one(accounts: Mapping[Any, Any], decided: Decided, using: str) -> None:
    """Take the project's own steps for each change."""
    for change, outcome in decided:
        account = accounts[change.account]
        account.balance, account.entry_count = outcome.balance_after, account.entry_count + 1
        account.save(using=using)
        account.record(change.amount, using=using, idempotency_key=change.idempotency_key, transfer=change.transfer)


def _all_at_once(accounts: Mapping[Any, Any], decided: Decided, using: str) -> None:
    """UPDATE each account once, in primary-key order, and INSERT all entries."""
    for pk, outcome in sorted({outcome.account: outcome for _, outcome in decided}.items()):
        _overwrite(accounts[pk], outcome, using)
    rows = [_entry(accounts[change.account], change, outcome) for change, outcome in decided]
    if rows:
        entries_of(type(next(iter(accounts.values()))), using).bulk_create(rows)


def _overwrite(account: Any, outcome: Applied, using: str) -> None:
    model = type(account)
    # The version says once more what the lock is for: on databases without row locks nothing else would.
    rows = model._base_manager.using(using).filter(pk=account.pk, version=account.version)
    count = account.entry_count + outcome.version_after - account.version
    changes = {"balance": outcome.balance_after, "version": outcome.version_after, "entry_count": count}
    if not rows.update(**auto_now_values(model), **changes):
        raise StaleVersionError(model=model, pk=account.pk, expected=account.version, target=account)


def _entry(account: Any, change: Change, outcome: Applied) -> models.Model:
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


def _entries_of(model: type[Any], new: Iterable[Applied], using: str) -> dict[tuple[Any, int], Any]:
    """Return the keys of the entries that were just written, by account and version; not every database tells them."""
    versions = {(outcome.account, outcome.version_after) for outcome in new}
    wanted = {"account__pk__in": {pk for pk, _ in versions}, "version_after__in": {version for _, version in versions}}
    rows = entries_of(model, using).filter(**wanted).values_list("account__pk", "version_after", "pk")
    return {(pk, version): entry for pk, version, entry in rows}
