"""Deciding about queued changes whose accounts are held: what each comes to, applied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.db import DatabaseError, connections, transaction

from accounts.abstract import reused
from accounts.contrib.queued.errors import ChangeFailed, may_pass
from accounts.contrib.queued.marking import Outcome
from accounts.engine.batches import Plan
from accounts.engine.changes import Applied, Change
from accounts.errors import AccountError

__all__ = ["REFUSALS", "Decided", "decide", "decide_apart"]

REFUSALS = (DatabaseError, ValidationError)
"""What writing a change may be refused with: by the database, or by code of the project's that saves it."""

Decided = list[tuple[Any, Outcome]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is to become of one queued change."""

    row: Any
    """The queued change."""
    parts: list[Change]
    """What it does to accounts."""
    outcome: Outcome
    """What its first part comes to, or what refuses the whole; None: an account is gone."""

    @property
    def new(self) -> list[Change]:
        """What is still to be applied."""
        return self.parts if isinstance(self.outcome, Applied) and not self.outcome.replayed else []


def decide(model: type[Any], rows: list[Any], accounts: Mapping[Any, Any], *, using: str) -> Decided:
    """Apply what the accounts allow of these changes, by one `apply_many`; return what each came to, by its key."""
    decisions = list(_planned(rows, accounts, using))
    # As planned: the accounts are locked.
    model.account_model().apply_many([part for decision in decisions for part in decision.new], using=using)
    return [(decision.row.pk, decision.outcome) for decision in decisions]


def decide_apart(model: type[Any], rows: list[Any], pks: Iterable[Any], *, using: str) -> Decided:
    """Do as `decide`, though some change is refused by the database: it is searched by halves, and has failed.

    Needs a transaction that holds the accounts with these keys. The order is kept, and what a later change comes to
    does not count on those that failed.
    """
    half = len(rows) // 2
    parts = filter(None, (rows[:half], rows[half:]))
    return [each for part in parts for each in _decide_part(model, part, pks, using=using)]


def _decide_part(model: type[Any], rows: list[Any], pks: Iterable[Any], *, using: str) -> Decided:
    """Decide about these together if the database takes them, otherwise apart."""
    # Read again: an earlier part may have changed the same accounts.
    accounts = {account.pk: account for account in model.account_model()._base_manager.using(using).filter(pk__in=pks)}
    try:
        with transaction.atomic(using=using):
            decided = decide(model, rows, accounts, using=using)
            if connections[using].vendor == "postgresql":
                # Deferred constraints would refuse the COMMIT instead, and so all changes.
                connections[using].check_constraints()
            return decided
    except REFUSALS as error:
        if may_pass(error):
            raise
        if len(rows) == 1:
            return [(rows[0].pk, ChangeFailed.because(error))]
    return decide_apart(model, rows, pks, using=using)


def _planned(rows: list[Any], accounts: Mapping[Any, Any], using: str) -> Iterator[Decision]:
    changes = [(row, row.changes()) for row in rows]
    plan = Plan(accounts, [part for _, parts in changes for part in parts], using=using)
    for row, parts in changes:
        is_gone = any(part.account not in accounts for part in parts)
        yield Decision(row=row, parts=parts, outcome=None if is_gone else _outcome(plan, parts))


def _outcome(plan: Plan, parts: list[Change]) -> Applied | AccountError:
    """Return what the first part comes to if all can be applied, otherwise what refuses them."""
    first = plan.decide(0, parts[0])
    if isinstance(first, AccountError) or len(parts) == 1:
        return first
    if first.replayed:
        # The key's entry says that it was a transfer, and not where it went.
        if plan.went_to(parts[0], parts[1].account):
            return first
        return reused(first.account, parts[0].idempotency_key, amount=first.amount)
    second = plan.decide(1, parts[1])
    if isinstance(second, AccountError):
        plan.take_back(first)
        return second
    return first
