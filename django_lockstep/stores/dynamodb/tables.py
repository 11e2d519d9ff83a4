"""The table of a DynamoDB store."""

from __future__ import annotations

import time
from typing import Any

from django_lockstep.stores.dynamodb.client import Client
from django_lockstep.stores.errors import StoreRefused, StoreUnavailable
from django_lockstep.stores.protocol import CALL_TIMEOUT
from django_lockstep.stores.waiting import pauses

__all__ = ["IAM_ACTIONS", "IAM_ACTIONS_OF_CREATE", "create_table", "table_problem"]

IAM_ACTIONS = (
    "dynamodb:ConditionCheckItem",
    "dynamodb:DeleteItem",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:Scan",
    "dynamodb:UpdateItem",
)
"""What the store needs; a transaction needs the actions of its parts."""
IAM_ACTIONS_OF_CREATE = ("dynamodb:CreateTable", "dynamodb:DescribeTable")

_KEY = [{"AttributeName": "pk", "KeyType": "HASH"}]
_KEY_TYPES = [{"AttributeName": "pk", "AttributeType": "S"}]
_PATIENCE, _SHORTEST_PAUSE = 120.0, 0.05
"""Seconds until a new table can be used, at most, and between two looks, at least."""


def create_table(client: Client, table: str) -> bool:
    """Create the table, billed by request, and wait until it can be used; return whether it was created now."""
    try:
        client.call(
            "create_table",
            timeout=CALL_TIMEOUT,
            TableName=table,
            KeySchema=_KEY,
            AttributeDefinitions=_KEY_TYPES,
            BillingMode="PAY_PER_REQUEST",
        )
    except StoreRefused as error:
        if error.code != "ResourceInUseException":
            raise
        return False
    for pause in pauses(time.monotonic() + _PATIENCE, shortest=_SHORTEST_PAUSE):
        if _described(client, table)["TableStatus"] == "ACTIVE":
            return True
        time.sleep(pause)
    raise StoreUnavailable(f"Table {table!r} is still being created")


def table_problem(client: Client, table: str) -> str:
    """Return what is wrong with the table; empty if nothing is."""
    try:
        found = _described(client, table)
    except StoreRefused as error:
        if error.code != "ResourceNotFoundException":
            raise
        return f"table {table!r} does not exist"
    types = [kind for kind in found["AttributeDefinitions"] if kind["AttributeName"] == "pk"]
    if found["KeySchema"] != _KEY or types != _KEY_TYPES:
        return f"table {table!r} has another key than the string 'pk' alone"
    return ""


def _described(client: Client, table: str) -> dict[str, Any]:
    described: dict[str, Any] = client.call("describe_table", timeout=CALL_TIMEOUT, TableName=table)["Table"]
    return described
