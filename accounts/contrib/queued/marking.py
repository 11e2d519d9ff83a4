"""Writing into the queue what its changes came to."""

from __future__ import annotations

import functools
import json
from typing import Any

from django.db import connections
from django.db.models.functions import Now

from accounts.changes import Applied
from accounts.contrib.queued.refusals import as_data
from accounts.errors import AccountError
from django_lockstep.locking.compiled import Compiled, array_literal, filled_in, is_psycopg, plain, write
from django_lockstep.locking.writes import place_type

__all__ = ["mark"]

Outcome = Applied | AccountError | None

# One parameter a column, so that batches of every length share one prepared statement.
_STATEMENT = """\
UPDATE {table} SET {assignments}, {decided_at} = statement_timestamp()
FROM unnest({arrays}) AS given ({names}) WHERE {table}.{id} = given.pk"""
_COLUMNS = ("state", "balance_after", "version_after", "replayed", "refusal")


def mark(model: Any, outcomes: list[tuple[Any, Outcome]], *, using: str) -> None:
    """Write what the changes with these keys came to; None is an account that is gone."""
    rows = [(pk, *_values(model, outcome)) for pk, outcome in outcomes]
    if rows and is_psycopg(using):
        arrays = {
            name: array_literal(column) for name, column in zip(("pk", *_COLUMNS), zip(*rows, strict=True), strict=True)
        }
        write(connections[using], _compiled(model, using), arrays)
        return
    for pk, *values in rows:
        changes = dict(zip(_COLUMNS, values, strict=True))
        changes["refusal"] = json.loads(changes["refusal"]) if changes["refusal"] else None
        model._base_manager.using(using).filter(pk=pk).update(**changes, decided_at=Now())


def _values(model: type[Any], outcome: Outcome) -> tuple[Any, ...]:
    if isinstance(outcome, Applied):
        state = model.State.APPLIED.value
        return state, outcome.balance_after, outcome.version_after, outcome.replayed, None
    return model.State.REFUSED.value, None, None, None, json.dumps(as_data(outcome))


@functools.cache
def _compiled(model: Any, using: str) -> Compiled:
    quote = connections[using].ops.quote_name
    fields = {name: model._meta.pk if name == "pk" else model._meta.get_field(name) for name in ("pk", *_COLUMNS)}
    arrays = [plain(name) + f"::{place_type(field, connections[using])}[]" for name, field in fields.items()]
    return filled_in(
        _STATEMENT,
        table=quote(model._meta.db_table),
        assignments=", ".join(f"{quote(fields[name].column)} = given.{name}" for name in _COLUMNS),
        arrays=functools.reduce(lambda done, array: done + ", " + array, arrays),
        names=", ".join(fields),
        id=quote(fields["pk"].column),
        decided_at=quote(model._meta.get_field("decided_at").column),
    )
