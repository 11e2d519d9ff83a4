"""The compiled counterparts of the queue's writes: one statement each."""

from __future__ import annotations

import functools
from typing import Any

from django.db import connections, models
from django.db.models.signals import post_save, pre_save

from accounts.contrib.queued.abstract import AbstractQueuedChange
from accounts.contrib.queued.outcomes import COLUMNS, QueuedOutcome, columns_of
from django_lockstep.locking.compiled import (
    Compiled,
    array_literal,
    fetch,
    fill_template,
    is_psycopg,
    parameter,
    plain,
    write,
)
from django_lockstep.locking.memory import is_expression
from django_lockstep.locking.writes import place_type

__all__ = ["append", "write_outcomes"]

# The accounts are looked up without a lock: only Django protects an account that has queued changes, and if it is
# deleted by SQL, or while a change is being appended, the change is refused later.
_INSERT = """\
INSERT INTO {table} ({columns})
SELECT {values} WHERE {are_there}
ON CONFLICT DO NOTHING RETURNING {id}"""
_IS_THERE = "EXISTS (SELECT FROM {accounts} WHERE {pk} = %s)"
_SAVED_BY = ("save", "save_base")
_SIGNALS = (pre_save, post_save)


# One array parameter for each column, so that batches of every length share one prepared statement.
_UPDATE = """\
UPDATE {table} SET {assignments}, {decided_at} = statement_timestamp()
FROM unnest({arrays}) AS given ({names}) WHERE {table}.{id} = given.pk"""


def append(change: AbstractQueuedChange, *, using: str) -> Any:
    """`accounts.contrib.queued.appending.append` in one INSERT, which also checks that the accounts exist."""
    model = type(change)
    # The INSERT would skip an overridden save() and the receivers of signals.
    changed = _overrides_saving(model) or any(signal.has_listeners(model) for signal in _SIGNALS)
    return change if not changed and is_psycopg(using) and _inserted(change, using) else NotImplemented


@functools.cache
def _overrides_saving(model: type[models.Model]) -> bool:
    return any(getattr(model, step) is not getattr(models.Model, step) for step in _SAVED_BY)


def _inserted(change: AbstractQueuedChange, using: str) -> bool:
    """Insert the change in one statement; return False, with nothing written, where the plain function must decide."""
    model = type(change)
    values = _values(change)
    if any(map(is_expression, values.values())):
        return False
    rows = fetch(connections[using], _insert(model, using, tuple(values)), values)
    if rows:
        (change.pk,) = rows[0]
        change._state.db, change._state.adding = using, False
    return bool(rows)


def _values(change: AbstractQueuedChange) -> dict[str, Any]:
    """Return the values that ``save()`` would write, by field, without NULL and without database defaults."""
    fields = [field for field in change._meta.concrete_fields if not field.generated]
    values = {field: field.pre_save(change, add=True) for field in fields}
    return {
        field.name: value
        for field, value in values.items()
        if value is not None and not (field.has_db_default() and is_expression(value))
    }


@functools.lru_cache(maxsize=256)  # bounded, because callers choose which fields have values
def _insert(model: Any, using: str, names: tuple[str, ...]) -> Compiled:
    """Return the INSERT for the fields with these names."""
    quote = connections[using].ops.quote_name
    accounts = model.account_model()
    is_there = _IS_THERE.format(accounts=quote(accounts._meta.db_table), pk=quote(accounts._meta.pk.column))
    mentioned = [name for name in names if name in ("account", "target")]
    statement = _INSERT.format(
        table=quote(model._meta.db_table),
        columns=", ".join(quote(model._meta.get_field(name).column) for name in names),
        values=", ".join(["%s"] * len(names)),
        are_there=" AND ".join([is_there] * len(mentioned)),
        id=quote(model._meta.pk.column),
    )
    return Compiled(statement, tuple(parameter(model, name) for name in (*names, *mentioned)))


def write_outcomes(model: type[AbstractQueuedChange], outcomes: list[tuple[Any, QueuedOutcome]], *, using: str) -> Any:
    """`accounts.contrib.queued.outcomes.write_outcomes` in one UPDATE for all changes."""
    if not outcomes or not is_psycopg(using):
        return NotImplemented
    rows = [(pk, *columns_of(model, outcome)) for pk, outcome in outcomes]
    columns = zip(("pk", *COLUMNS), zip(*rows, strict=True), strict=True)
    return write(connections[using], _update(model, using), {name: array_literal(column) for name, column in columns})


@functools.cache
def _update(model: Any, using: str) -> Compiled:
    quote = connections[using].ops.quote_name
    fields = {name: model._meta.pk if name == "pk" else model._meta.get_field(name) for name in ("pk", *COLUMNS)}
    arrays = [plain(name) + f"::{place_type(field, connections[using])}[]" for name, field in fields.items()]
    return fill_template(
        _UPDATE,
        table=quote(model._meta.db_table),
        assignments=", ".join(f"{quote(fields[name].column)} = given.{name}" for name in COLUMNS),
        arrays=functools.reduce(lambda done, array: done + ", " + array, arrays),
        names=", ".join(fields),
        id=quote(fields["pk"].column),
        decided_at=quote(model._meta.get_field("decided_at").column),
    )
