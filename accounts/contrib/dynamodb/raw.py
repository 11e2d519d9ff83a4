"""Requests to DynamoDB for which the contract of stores has no verb: a list of what is there, and deletion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from accounts.contrib.dynamodb.keys import LEDGER
from django_lockstep.stores import get_store
from django_lockstep.stores.dynamodb.items import PREFIX
from django_lockstep.stores.dynamodb.store import DynamoStore
from django_lockstep.stores.protocol import CALL_TIMEOUT

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
    request: dict[str, Any] = {
        "ConsistentRead": True,
        "ProjectionExpression": "pk",
        "FilterExpression": "begins_with(pk, :ledger)",
        "ExpressionAttributeValues": {":ledger": raw_key(LEDGER)["pk"]},
    }
    while True:
        page = _call(store, "scan", **request)
        yield from (item["pk"]["S"].removeprefix(PREFIX) for item in page["Items"])
        if "LastEvaluatedKey" not in page:
            return
        request["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def remove(store: DynamoStore, keys: Iterable[str]) -> None:
    """Delete the items, whatever their versions are."""
    for key in keys:
        _call(store, "delete_item", Key=raw_key(key))


def _call(store: DynamoStore, operation: str, **request: Any) -> dict[str, Any]:
    # Not store.client: boto3's own client neither retries what throttling made fail, nor raises the store's errors.
    return store._client.call(operation, timeout=CALL_TIMEOUT, TableName=store.table, **request)
