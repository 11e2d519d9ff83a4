"""The store on DynamoDB."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Self

from django_lockstep.stores.conf import get_store
from django_lockstep.stores.dynamodb.items import PREFIX, DynamoItems
from django_lockstep.stores.dynamodb.leases import DynamoLeases
from django_lockstep.stores.errors import StoreRefused, StoreUnavailable
from django_lockstep.stores.protocol import CALL_TIMEOUT, pauses

_KEY = [{"AttributeName": "pk", "KeyType": "HASH"}]
_KEY_TYPES = [{"AttributeName": "pk", "AttributeType": "S"}]
_PATIENCE, _SHORTEST_PAUSE = 120.0, 0.05
"""Seconds until a new table can be used, at most, and between two looks, at least."""


class DynamoStore(DynamoLeases, DynamoItems):
    """Leases and items in one table, whose key is the string ``pk``; made from its options in ``LOCKSTEP_STORES``."""

    @classmethod
    def named(cls, name: str) -> Self:
        """Return the store of this name. Raises ``ValueError`` for one that is not on DynamoDB."""
        store = get_store(name)
        if not isinstance(store, cls):
            raise ValueError(f"store {name!r} is not on DynamoDB")  # noqa: TRY004 - it is the name that is wrong
        return store

    @property
    def client(self) -> Any:
        """boto3's low-level client, for requests of one's own."""
        return self._client.raw

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """Send a request of one's own about the table, with the store's retries and errors, which boto3 has not."""
        return self._client.call(operation, timeout=CALL_TIMEOUT, TableName=self.table, **request)

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys of all items that begin so, in no order; reads the whole table."""
        for item in self._client.scan(PREFIX + prefix, ProjectionExpression="pk"):
            yield item["pk"]["S"].removeprefix(PREFIX)

    def create(self) -> bool:
        """Create the table, billed by request, and wait until it can be used; return False if there was one."""
        try:
            self.call("create_table", KeySchema=_KEY, AttributeDefinitions=_KEY_TYPES, BillingMode="PAY_PER_REQUEST")
        except StoreRefused as error:
            if error.code != "ResourceInUseException":
                raise
            return False
        for pause in pauses(time.monotonic() + _PATIENCE, shortest=_SHORTEST_PAUSE):
            if self.call("describe_table")["Table"]["TableStatus"] == "ACTIVE":
                return True
            time.sleep(pause)
        raise StoreUnavailable(f"Table {self.table!r} is still being created")

    def problem(self) -> str:
        """Return what is wrong with the table; empty if nothing is."""
        try:
            description = self.call("describe_table")["Table"]
        except StoreRefused as error:
            if error.code != "ResourceNotFoundException":
                raise
            return f"table {self.table!r} does not exist"
        types = [kind for kind in description["AttributeDefinitions"] if kind["AttributeName"] == "pk"]
        if description["KeySchema"] != _KEY or types != _KEY_TYPES:
            return f"table {self.table!r} has another key than the string 'pk' alone"
        return ""
