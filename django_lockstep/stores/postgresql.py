"""Conditional writes of items on PostgreSQL; each is one statement."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.db import NotSupportedError, connections, transaction

from django_lockstep.errors import translated_errors
from django_lockstep.stores.errors import TokenReused
from django_lockstep.stores.terms import valid_key
from django_lockstep.stores.values import decode
from django_lockstep.stores.writes import (
    Delete,
    Guard,
    Item,
    ItemWrites,
    Outcome,
    Put,
    Update,
    Write,
    new_version,
    valid_transaction,
)

__all__ = ["PostgresItems"]

_INSERT = """
INSERT INTO {items} (key, version, attributes) VALUES (%(key)s, %(new)s, %(attributes)s::jsonb) ON CONFLICT DO NOTHING
"""
# The version is in the WHERE: after a wait for another writer READ COMMITTED compares it again with the row as it is.
_UNCHANGED = " WHERE key = %(key)s AND version = %(seen)s"
_REPLACE = "UPDATE {items} SET version = %(new)s, attributes = %(attributes)s::jsonb" + _UNCHANGED
_UPDATE = (
    "UPDATE {items} SET version = %(new)s, attributes = (attributes - %(remove)s::text[]) || %(attributes)s::jsonb"
    + _UNCHANGED
)
_DELETE = "DELETE FROM {items}" + _UNCHANGED

# Waits for another transaction with this token.
_REMEMBER = """
INSERT INTO {tokens} (token, digest, created_at) VALUES (%(token)s, %(digest)s, clock_timestamp())
ON CONFLICT DO NOTHING
"""
# Long after the ten minutes that are promised. SKIP LOCKED: of two transactions that find the same old tokens neither
# waits for the other.
_FORGET = """
DELETE FROM {tokens} WHERE token IN (
    SELECT token FROM {tokens} WHERE created_at < clock_timestamp() - interval '1 day' LIMIT 100 FOR UPDATE SKIP LOCKED)
"""
_DIGEST = "SELECT digest FROM {tokens} WHERE token = %(token)s"


class PostgresItems(ItemWrites):
    """The verbs of items on one database; they join the calling thread's open transaction."""

    def __init__(self, using: str) -> None:
        self.name = using

    def read(self, key: str) -> Item | None:
        row = self._model("StoredItem").using(self.name).filter(pk=valid_key(key)).first()
        if row is None:
            return None
        attributes = {name: decode(value) for name, value in row.attributes.items()}
        return Item(key=key, version=row.version, attributes=attributes)

    def delete_if_unchanged(self, key: str, *, version: int) -> bool:
        with translated_errors():
            return self._is_written(Delete(key, version), "")

    def transact(self, writes: Sequence[Write], *, guards: Sequence[Guard] = (), token: str | None = None) -> Outcome:
        """Do all of the writes or none, in one transaction or in a savepoint of the open one.

        Rows are locked in the order of their keys, so that transactions on the same items cannot deadlock; the token,
        before them.
        """
        valid_transaction(writes, guards, token)
        seed = token or str(uuid.uuid4())
        outcome = Outcome(versions=tuple(new_version(write, seed) for write in writes))
        try:
            with translated_errors(), transaction.atomic(using=self.name):
                if token is None or self._remember(token, _digest(writes, guards)):
                    self._write_all(writes, guards, seed)
        except _Refused as refused:
            return Outcome(refused=refused.positions)
        return outcome

    def _write_all(self, writes: Sequence[Write], guards: Sequence[Guard], token: str) -> None:
        for guard in guards:
            if guard.using != self.name:
                # It would guard nothing here.
                raise ValueError(f"lease {guard.key!r} is on {guard.using!r}, and guards no writes on {self.name!r}")
            guard.guard()
        in_order = sorted(enumerate(writes), key=lambda numbered: numbered[1].key)
        refused = tuple(sorted(number for number, write in in_order if not self._is_written(write, token)))
        if refused:
            raise _Refused(refused)

    def _remember(self, token: str, digest: str) -> bool:
        """Return whether this is the token's first transaction; raise `TokenReused` for other writes than then."""
        self._execute(_FORGET, {})
        if self._execute(_REMEMBER, {"token": token, "digest": digest}):
            return True
        with connections[self.name].cursor() as cursor:
            cursor.execute(self._named(_DIGEST), {"token": token})
            if cursor.fetchone() != (digest,):
                raise TokenReused(store=self.name)
        return False

    def write(self, write: Put | Update) -> int | None:
        token = str(uuid.uuid4())
        with translated_errors():
            if not self._is_written(write, token):
                return None
        return new_version(write, token)

    def _is_written(self, write: Write, token: str) -> bool:
        facts = {**_facts(write), "new": new_version(write, token)}
        if isinstance(write, Put | Update):
            facts["attributes"] = json.dumps(write.encoded, ensure_ascii=False)
        return bool(self._execute(_statement(write), facts))

    def _execute(self, sql: str, facts: dict[str, Any]) -> int:
        connection = connections[self.name]
        if connection.vendor != "postgresql":
            raise NotSupportedError(f"A store's items need PostgreSQL or DynamoDB, not {connection.vendor}")
        with connection.cursor() as cursor:
            cursor.execute(self._named(sql), facts)
            return int(cursor.rowcount)

    def _named(self, sql: str) -> str:
        quote = connections[self.name].ops.quote_name
        tables = {"items": self._model("StoredItem"), "tokens": self._model("StoredToken")}
        return sql.format(**{name: quote(manager.model._meta.db_table) for name, manager in tables.items()})

    def _model(self, name: str) -> Any:
        # Looked up late: models cannot be imported before the apps are loaded.
        return apps.get_model("lockstep_stores", name)._base_manager


class _Refused(Exception):
    """Takes a transaction back: the positions of the writes whose condition does not hold."""

    def __init__(self, positions: tuple[int, ...]) -> None:
        super().__init__(positions)
        self.positions = positions


def _statement(write: Write) -> str:
    match write:
        case Put(version=None):
            return _INSERT
        case Put():
            return _REPLACE
        case Update():
            return _UPDATE
        case Delete():
            return _DELETE


def _digest(writes: Sequence[Write], guards: Sequence[Guard]) -> str:
    facts = [[type(write).__name__, *_facts(write).items()] for write in writes]
    guarded = [[guard.key, guard.token] for guard in guards]
    return hashlib.sha256(json.dumps([facts, guarded], sort_keys=True).encode()).hexdigest()


def _facts(write: Write) -> dict[str, Any]:
    facts: dict[str, Any] = {"key": write.key, "seen": write.version}
    if isinstance(write, Put | Update):
        facts["attributes"] = write.encoded
    if isinstance(write, Update):
        facts["remove"] = list(write.remove)
    return facts
