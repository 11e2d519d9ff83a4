"""Writing into the queue what its changes came to."""

from __future__ import annotations

import json
from typing import Any

from django.db.models.functions import Now

from accounts.contrib.queued.errors import ChangeFailed
from accounts.contrib.queued.refusals import as_data
from accounts.engine import compiled_by
from accounts.engine.changes import Applied
from accounts.errors import AccountError

__all__ = ["COLUMNS", "Outcome", "mark", "values_of"]

Outcome = Applied | AccountError | None

COLUMNS = ("state", "balance_after", "version_after", "replayed", "refusal")


@compiled_by("accounts.contrib.queued.compiled.mark")
def mark(model: Any, outcomes: list[tuple[Any, Outcome]], *, using: str) -> None:
    """Write what the changes with these keys came to; None is an account that is gone."""
    rows = [(pk, *values_of(model, outcome)) for pk, outcome in outcomes]
    for pk, *values in rows:
        changes = dict(zip(COLUMNS, values, strict=True))
        changes["refusal"] = json.loads(changes["refusal"]) if changes["refusal"] else None
        model._base_manager.using(using).filter(pk=pk).update(**changes, decided_at=Now())


def values_of(model: type[Any], outcome: Outcome) -> tuple[Any, ...]:
    """Return what goes into `COLUMNS`; the refusal is JSON, as text."""
    if isinstance(outcome, Applied):
        return model.State.APPLIED.value, outcome.balance_after, outcome.version_after, outcome.replayed, None
    state = model.State.FAILED if isinstance(outcome, ChangeFailed) else model.State.REFUSED
    return state.value, None, None, None, json.dumps(as_data(outcome))
