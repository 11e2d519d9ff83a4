"""Appending a change: one INSERT that locks no account."""

from __future__ import annotations

import functools
from typing import Any

from django.db import connections

from accounts.changes import Change, require_same
from accounts.locking.compiled import Compiled, fetch, filled_in, is_psycopg, plain

__all__ = ["append"]

# Whether the accounts are there is read, not locked: an account with changes in the queue is protected by Django alone,
# and whoever deletes it in SQL gets changes that are refused.
_STATEMENT = """\
INSERT INTO {table} ({columns})
SELECT {values} WHERE EXISTS (SELECT FROM {accounts} WHERE {pk} = {account})
AND ({target} IS NULL OR EXISTS (SELECT FROM {accounts} WHERE {pk} = {target}))
ON CONFLICT DO NOTHING RETURNING {id}"""
_COLUMNS = ("account", "target", "amount", "idempotency_key")


def append(change: Any, *, using: str) -> Any:
    """Insert the change, or find the one with its key; return it. Raises as `AbstractQueuedChange.deposit` does."""
    if is_psycopg(using):
        model: Any = type(change)
        given = (change.account_id, change.target_id, change.amount, change.idempotency_key)
        rows = fetch(connections[using], _compiled(model, using), dict(zip(_COLUMNS, given, strict=True)))
        if rows:
            (change.pk,) = rows[0]
            change._state.db, change._state.adding = using, False
            return change
    return _append_in_steps(change, using)


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
    if not made:
        wanted = Change(change.account_id, change.amount, change.idempotency_key, change.target_id)
        require_same(wanted, amount=first.amount, transfer=first.target_id)
    return first


@functools.cache
def _compiled(model: Any, using: str) -> Compiled:
    quote = connections[using].ops.quote_name
    accounts = model.account_model()
    state = quote(model._meta.get_field("state").column)
    columns = [quote(model._meta.get_field(name).column) for name in _COLUMNS]
    places = {name: plain(name) + f"::{_type_of(model, name, using)}" for name in _COLUMNS}
    values = functools.reduce(lambda done, place: done + ", " + place, places.values())
    pending = f"'{model.State.PENDING.value}'"
    return filled_in(
        _STATEMENT,
        table=quote(model._meta.db_table),
        columns=", ".join([*columns, state]),
        values=values + f", {pending}",
        accounts=quote(accounts._meta.db_table),
        pk=quote(accounts._meta.pk.column),
        account=places["account"],
        target=places["target"],
        id=quote(model._meta.pk.column),
    )


def _type_of(model: type[Any], name: str, using: str) -> str:
    field = model._meta.get_field(name)
    # Without a length: a cast to one cuts silently.
    return str(field.cast_db_type(connections[using])).partition("(")[0]
