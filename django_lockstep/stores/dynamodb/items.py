"""Conditional writes of items on DynamoDB."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from django_lockstep.stores.conf import get_store
from django_lockstep.stores.dynamodb.client import Client, TransactionCancelled
from django_lockstep.stores.dynamodb.values import Encoded, decode, encode
from django_lockstep.stores.dynamodb.writes import (
    RESERVED,
    Delete,
    Guard,
    Item,
    Outcome,
    Put,
    Update,
    Write,
    new_version,
    valid_transaction,
)
from django_lockstep.stores.errors import StoreUnavailable
from django_lockstep.stores.protocol import CALL_TIMEOUT
from django_lockstep.stores.terms import valid_key

PREFIX = "item#"
"""Before the key of an item in the table's key."""

_PARTS = {Put: "Put", Update: "Update", Delete: "Delete"}


class DynamoItems:
    """The verbs of items: named sets of attributes with a version, written only under conditions.

    Each write is a ``TransactWriteItems``, also of one item: the server remembers its token, so that a request whose
    answer was lost is not done twice. A write whose condition does not hold writes nothing and answers None or False.
    Bad keys, names, versions and values are a ``TypeError`` or ``ValueError`` before any call.
    """

    name: str
    table: str
    """The name of the table."""
    _client: Client

    def read(self, key: str) -> Item | None:
        """Return the item as the last write left it; None if there is none."""
        item = self._client.read(item_key(key))
        if item is None:
            return None
        attributes = {name: decode(value) for name, value in item.items() if name not in RESERVED}
        return Item(key=key, version=int(item["version"]["N"]), attributes=attributes)

    def put_if_absent(self, key: str, attributes: Mapping[str, object]) -> int | None:
        """Write a new item; return its version, or None if there is one."""
        return self._write(Put(key, attributes))

    def put_if_unchanged(self, key: str, attributes: Mapping[str, object], *, version: int | None) -> int | None:
        """Replace the item if it still has this version (None: if there is still none); return the new version."""
        return self._write(Put(key, attributes, version))

    def update_if_unchanged(
        self, key: str, changes: Mapping[str, object], *, version: int, remove: Sequence[str] = ()
    ) -> int | None:
        """Write some attributes if the item still has this version; return the new version."""
        return self._write(Update(key, changes, version, remove))

    def delete_if_unchanged(self, key: str, *, version: int) -> bool:
        """Delete the item if it still has this version."""
        return bool(self.transact([Delete(key, version)]))

    def transact(self, writes: Sequence[Write], *, guards: Sequence[Guard] = (), token: str | None = None) -> Outcome:
        """Do all of the writes, while all of the guards' leases are held, or none of them.

        Called again with the same ``token`` and writes within ten minutes it does nothing twice and answers the same:
        the server remembers the token. Raises `LeaseLost` where a guard's lease was lost, `TokenReused` for a token of
        other writes.
        """
        valid_transaction(writes, guards, token)
        token = token or str(uuid.uuid4())
        parts = [self._condition_of(guard) for guard in guards]
        parts += [{_PARTS[type(write)]: _request(write, self.table, token)} for write in writes]
        try:
            self._client.call(
                "transact_write_items",
                timeout=CALL_TIMEOUT,
                TransactItems=parts,
                # Tokens are the whole account's; ours are this table's.
                ClientRequestToken=hashlib.sha256(f"{self.table}\0{token}".encode()).hexdigest()[:32],
            )
        except TransactionCancelled as error:
            return self._cancelled(error, guards)
        return Outcome(versions=tuple(new_version(write, token) for write in writes))

    def _condition_of(self, guard: Guard) -> dict[str, Any]:
        condition = guard.guard()
        if condition is None:
            raise ValueError(f"lease {guard.key!r} is on database {guard.using!r}, and guards no writes on DynamoDB")
        store = self if guard.using == self.name else get_store(guard.using)
        if not isinstance(store, DynamoItems) or store._client.place != self._client.place:
            # The same table may be there as well, with another lease of this key.
            raise ValueError(f"lease {guard.key!r} is in store {guard.using!r}, and guards no writes in {self.name!r}")
        return dict(condition)

    def _cancelled(self, error: TransactionCancelled, guards: Sequence[Guard]) -> Outcome:
        refused = [number for number, code in enumerate(error.reasons) if code == "ConditionalCheckFailed"]
        if not refused:
            codes = ", ".join(error.reasons)
            raise StoreUnavailable(f"Store {self.name!r} refused a transaction: {codes}", store=self.name) from error
        if refused[0] < len(guards):
            raise guards[refused[0]].refuse() from error
        return Outcome(refused=tuple(number - len(guards) for number in refused))

    def _write(self, write: Put | Update) -> int | None:
        outcome = self.transact([write])
        return outcome.versions[0] if outcome else None


def item_key(key: str) -> dict[str, Encoded]:
    """Return the table's key of the item with this key."""
    return {"pk": encode(PREFIX + valid_key(key))}


def _request(write: Write, table: str, token: str) -> dict[str, Any]:
    """Return the write's part of a transaction."""
    request: dict[str, Any] = {"TableName": table, **_condition(write)}
    version = {"version": encode(new_version(write, token))}
    if isinstance(write, Put):
        request["Item"] = {**item_key(write.key), **version, **write.encoded}
        return request
    request["Key"] = item_key(write.key)
    if isinstance(write, Update):
        _add_changes(request, {**version, **write.encoded}, write.remove)
    return request


def _condition(write: Write) -> dict[str, Any]:
    if write.version is None:
        return {"ConditionExpression": "attribute_not_exists(pk)"}
    return {
        "ConditionExpression": "#seen = :seen",
        "ExpressionAttributeNames": {"#seen": "version"},
        "ExpressionAttributeValues": {":seen": encode(write.version)},
    }


def _add_changes(request: dict[str, Any], changes: dict[str, Encoded], remove: Sequence[str]) -> None:
    # Names and values by placeholders: any name can be a reserved word.
    removed = [f"#r{number}" for number, _ in enumerate(remove)]
    sets = [f"#n{number} = :v{number}" for number, _ in enumerate(changes)]
    request["UpdateExpression"] = f"SET {', '.join(sets)}" + (f" REMOVE {', '.join(removed)}" if removed else "")
    request["ExpressionAttributeNames"] |= {f"#n{number}": name for number, name in enumerate(changes)}
    request["ExpressionAttributeNames"] |= dict(zip(removed, remove, strict=True))
    request["ExpressionAttributeValues"] |= {f":v{number}": value for number, value in enumerate(changes.values())}
