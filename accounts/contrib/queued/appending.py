"""Appending a change: one INSERT that locks no account."""

from __future__ import annotations

import functools
from typing import Any

from django.db import connections, models
from django.db.models.signals import post_save, pre_save

from accounts.changes import reused
from django_lockstep.locking.compiled import Compiled, fetch, is_psycopg, parameter
from django_lockstep.locking.memory import is_expression

__all__ = ["append"]

# Whether the accounts are there is read, not locked: an account with changes in the queue is protected by Django alone,
# and whoever deletes it in SQL, or while a change is being appended, gets changes that are refused.
_STATEMENT = """\
INSERT INTO {table} ({columns})
SELECT {values} WHERE {are_there}
ON CONFLICT DO NOTHING RETURNING {id}"""
_IS_THERE = "EXISTS (SELECT FROM {accounts} WHERE {pk} = %s)"
_SAVED_BY = ("save", "save_base")
_SIGNALS = (pre_save, post_save)


def append(change: Any, *, using: str) -> Any:
    """Insert the change, or find the one with its key; return it. Raises as `AbstractQueuedChange.deposit` does."""
    model: Any = type(change)
    plain = not _overrides_saving(model) and not any(signal.has_listeners(model) for signal in _SIGNALS)
    # One statement would not do what a project made of saving, nor tell those who listen.
    if plain and is_psycopg(using) and _inserted(change, using):
        return change
    return _append_in_steps(change, using)


@functools.cache
def _overrides_saving(model: type[models.Model]) -> bool:
    return any(getattr(model, step) is not getattr(models.Model, step) for step in _SAVED_BY)


def _inserted(change: Any, using: str) -> bool:
    """Insert the change in one statement; False, with nothing written, where there is more to do or to say."""
    model: Any = type(change)
    values = _values(change)
    if any(map(is_expression, values.values())):
        return False
    rows = fetch(connections[using], _compiled(model, using, tuple(values)), values)
    if rows:
        (change.pk,) = rows[0]
        change._state.db, change._state.adding = using, False
    return bool(rows)


def _values(change: Any) -> dict[str, Any]:
    """Return, by field, what saving the change would write, but for NULL and for what the database fills in."""
    fields = [field for field in change._meta.concrete_fields if not field.generated]
    values = {field: field.pre_save(change, add=True) for field in fields}
    return {
        field.name: value
        for field, value in values.items()
        if value is not None and not (field.has_db_default() and is_expression(value))
    }


def _append_in_steps(change: Any, using: str) -> Any:
    """Do the same with the query set API; say why where it cannot be done."""
    accounts = change.account_model()._base_manager.using(using)
    for pk in {change.account_id, change.target_id} - {None}:
        accounts.only("pk").get(pk=pk)
    rows = type(change)._base_manager.using(using)
    key = {"account_id": change.account_id, "idempotency_key": change.idempotency_key}
    if change.idempotency_key is None:
        change.save(force_insert=True, using=using)
        return change
    first, made = rows.get_or_create(**key, defaults={"amount": change.amount, "target_id": change.target_id})
    if not made and (first.amount, first.target_id) != (change.amount, change.target_id):
        raise reused(change.account_id, change.idempotency_key, amount=first.changes()[0].amount)
    return first


@functools.lru_cache(maxsize=256)  # which fields have values is the callers' choice
def _compiled(model: Any, using: str, names: tuple[str, ...]) -> Compiled:
    """Return the statement that gives a value to the fields with these names."""
    quote = connections[using].ops.quote_name
    accounts = model.account_model()
    is_there = _IS_THERE.format(accounts=quote(accounts._meta.db_table), pk=quote(accounts._meta.pk.column))
    mentioned = [name for name in names if name in ("account", "target")]
    statement = _STATEMENT.format(
        table=quote(model._meta.db_table),
        columns=", ".join(quote(model._meta.get_field(name).column) for name in names),
        values=", ".join(["%s"] * len(names)),
        are_there=" AND ".join([is_there] * len(mentioned)),
        id=quote(model._meta.pk.column),
    )
    return Compiled(statement, tuple(parameter(model, name) for name in (*names, *mentioned)))
