"""Decides about queued changes whose accounts are locked, and applies those that are allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.db import DatabaseError, connections, transaction

from accounts.abstract import key_reused_error
from accounts.contrib.queued.abstract import AbstractQueuedChange
from accounts.contrib.queued.errors import ChangeFailed, is_transient
from accounts.contrib.queued.outcomes import QueuedOutcome
from accounts.engine.batches import AppliedChange, BalanceChange, Projection
from accounts.errors import AccountError
from accounts.models import AbstractAccount

__all__ = ["REFUSALS", "QueuedDecisions", "decide", "decide_in_halves"]

REFUSALS = (DatabaseError, ValidationError)
"""Errors by which the database, or the project's own code that saves it, refuses to write a change."""

QueuedDecisions = list[tuple[Any, QueuedOutcome]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision about one queued change."""

    row: AbstractQueuedChange
    """The queued change."""
    parts: list[BalanceChange]
    """Its changes of accounts: one, or two of a transfer."""
    outcome: QueuedOutcome
    """The result of its first part, or the error that refuses the whole; None if an account does not exist."""

    @property
    def new(self) -> list[BalanceChange]:
        """The parts to apply: none if it is refused, or was applied before."""
        return self.parts if isinstance(self.outcome, AppliedChange) and not self.outcome.replayed else []


def decide(
    model: type[AbstractQueuedChange],
    rows: list[AbstractQueuedChange],
    accounts: Mapping[Any, AbstractAccount],
    *,
    using: str,
) -> QueuedDecisions:
    """Apply those of these changes that the accounts allow, by one `apply_many`; return (key, outcome) of each."""
    decisions = list(_project(rows, accounts, using))
    # The results are those projected, because the accounts are locked.
    model.account_model().apply_many([part for decision in decisions for part in decision.new], using=using)
    return [(decision.row.pk, decision.outcome) for decision in decisions]


def decide_in_halves(
    model: type[AbstractQueuedChange], rows: list[AbstractQueuedChange], pks: Iterable[object], *, using: str
) -> QueuedDecisions:
    """Do the same as `decide` where the database refuses some change: find it by bisection, and let it fail alone.

    Requires a transaction that has the accounts with these keys locked. The order is kept, and later changes are
    decided without those that failed.
    """
    # Bisection: one bad change among n costs about 2 log2(n) attempts instead of n.
    half = len(rows) // 2
    parts = filter(None, (rows[:half], rows[half:]))
    return [each for part in parts for each in _decide_half(model, part, pks, using=using)]


def _decide_half(
    model: type[AbstractQueuedChange], rows: list[AbstractQueuedChange], pks: Iterable[object], *, using: str
) -> QueuedDecisions:
    """Decide about these together in a savepoint; in halves again if the database refuses."""
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
        if is_transient(error):
            raise
        if len(rows) == 1:
            return [(rows[0].pk, ChangeFailed.from_error(error))]
    return decide_in_halves(model, rows, pks, using=using)


def _project(
    rows: list[AbstractQueuedChange], accounts: Mapping[Any, AbstractAccount], using: str
) -> Iterator[Decision]:
    changes = [(row, row.changes()) for row in rows]
    plan = Projection(accounts, [part for _, parts in changes for part in parts], using=using)
    for row, parts in changes:
        is_gone = any(part.account not in accounts for part in parts)
        yield Decision(row=row, parts=parts, outcome=None if is_gone else _outcome(plan, parts))


def _outcome(plan: Projection, parts: list[BalanceChange]) -> AppliedChange | AccountError:
    """Return the result of the first part if all parts can be applied, otherwise the error that refuses one."""
    # A transfer is decided by its source first: only that can lack funds, and only that has the key.
    first = plan.decide(0, parts[0])
    if isinstance(first, AccountError) or len(parts) == 1:
        return first
    if first.replayed:
        # `decide` compared amount and kind; the target of the earlier transfer is only in its other entry.
        if plan.was_sent_to(parts[0], parts[1].account):
            return first
        return key_reused_error(first.account, parts[0].idempotency_key, amount=first.amount)
    second = plan.decide(1, parts[1])
    if isinstance(second, AccountError):
        plan.undo(first)
        return second
    return first
