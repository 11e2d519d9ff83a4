"""Writes the results of changes into the queue."""

from __future__ import annotations

import json
from typing import Any

from django.db.models.functions import Now

from accounts.contrib.queued.abstract import AbstractQueuedChange
from accounts.contrib.queued.errors import ChangeFailed
from accounts.contrib.queued.refusals import refusal_to_data
from accounts.engine import compiled_by
from accounts.engine.batches import AppliedChange
from accounts.errors import AccountError

__all__ = ["COLUMNS", "QueuedOutcome", "columns_of", "write_outcomes"]

QueuedOutcome = AppliedChange | AccountError | None

COLUMNS = ("state", "balance_after", "version_after", "replayed", "refusal")


@compiled_by("accounts.contrib.queued.compiled.write_outcomes")
def write_outcomes(model: type[AbstractQueuedChange], outcomes: list[tuple[Any, QueuedOutcome]], *, using: str) -> None:
    """Write the results of the changes with these keys; None means that an account does not exist."""
    rows = [(pk, *columns_of(model, outcome)) for pk, outcome in outcomes]
    for pk, *values in rows:
        changes = dict(zip(COLUMNS, values, strict=True))
        changes["refusal"] = json.loads(changes["refusal"]) if changes["refusal"] else None
        model._base_manager.using(using).filter(pk=pk).update(**changes, decided_at=Now())


def columns_of(model: type[AbstractQueuedChange], outcome: QueuedOutcome) -> tuple[Any, ...]:
    """Return the values for `COLUMNS`; the refusal is JSON text."""
    if isinstance(outcome, AppliedChange):
        return model.State.APPLIED.value, outcome.balance_after, outcome.version_after, outcome.replayed, None
    state = model.State.FAILED if isinstance(outcome, ChangeFailed) else model.State.REFUSED
    return state.value, None, None, None, json.dumps(refusal_to_data(outcome))
