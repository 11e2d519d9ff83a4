"""Requests to DynamoDB for which the contract of stores has no verb: a list of what is there, and deletion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from accounts.contrib.dynamodb.keys import LEDGER
from django_lockstep.stores import get_store
from django_lockstep.stores.dynamodb.items import PREFIX
from django_lockstep.stores.dynamodb.store import DynamoStore

__all__ = ["dynamo_store", "ledger_keys", "raw_key", "remove"]


def dynamo_store(name: str) -> DynamoStore:
    """Return the store of this name. Raises ``ValueError`` for one that is not on DynamoDB."""
    store = get_store(name)
    if not isinstance(store, DynamoStore):
        raise ValueError(f"store {name!r} is not on DynamoDB")  # noqa: TRY004 - it is the name that is wrong
    return store


def raw_key(key: str) -> dict[str, Any]:
    """Return the table's key of the item with this key in the store."""
    return {"pk": {"S": PREFIX + key}}


def ledger_keys(store: DynamoStore) -> Iterator[str]:
    """Yield the keys of all accounts and entries; reads the whole table, as its last writes left it."""
    pages = store.client.get_paginator("scan").paginate(
        TableName=store.table,
        ConsistentRead=True,
        ProjectionExpression="pk",
        FilterExpression="begins_with(pk, :ledger)",
        ExpressionAttributeValues={":ledger": raw_key(LEDGER)["pk"]},
    )
    for page in pages:
        yield from (item["pk"]["S"].removeprefix(PREFIX) for item in page["Items"])


def remove(store: DynamoStore, keys: Iterable[str]) -> None:
    """Delete the items, whatever their versions are."""
    for key in keys:
        store.client.delete_item(TableName=store.table, Key=raw_key(key))
