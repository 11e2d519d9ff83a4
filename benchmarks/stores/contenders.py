"""Acquire and release on each kind of store, and what else can be had on DynamoDB."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta

from benchmarks.leases import PAUSE, TTL, WAIT, LeaseCycle
from benchmarks.stores.contention import STORE, StoreOptions, use
from django_lockstep.leases import lease

__all__ = ["CONTENDERS", "OTHER", "YARDSTICK"]

YARDSTICK, OTHER = "leases on DynamoDB", "python-dynamodb-lock"
_TABLE = "locks_of_others"


def _leases(options: StoreOptions) -> LeaseCycle:
    use(options)

    def hold(key: str) -> None:
        with lease(key, TTL, wait=WAIT, store=STORE):
            pass

    return hold


def _conditional_writes(options: StoreOptions) -> LeaseCycle:
    """Return what the simplest lock is: a put if there is no such item, and a delete by its owner."""
    import boto3

    client = boto3.session.Session().client(
        "dynamodb", region_name=options["REGION"], endpoint_url=options["ENDPOINT_URL"]
    )
    table, owner = options["TABLE"], {"S": uuid.uuid4().hex}

    def hold(key: str) -> None:
        name = {"pk": {"S": f"raw#{key}"}}
        while True:
            try:
                client.put_item(
                    TableName=table, Item={**name, "holder": owner}, ConditionExpression="attribute_not_exists(pk)"
                )
                break
            except client.exceptions.ConditionalCheckFailedException:
                time.sleep(PAUSE)
        client.delete_item(
            TableName=table,
            Key=name,
            ConditionExpression="holder = :owner",
            ExpressionAttributeValues={":owner": owner},
        )

    return hold


def _python_dynamodb_lock(options: StoreOptions) -> LeaseCycle:
    import boto3
    from python_dynamodb_lock.python_dynamodb_lock import DynamoDBLockClient

    resource = boto3.session.Session().resource(
        "dynamodb", region_name=options["REGION"], endpoint_url=options["ENDPOINT_URL"]
    )
    with suppress(resource.meta.client.exceptions.ResourceInUseException):
        DynamoDBLockClient.create_dynamodb_table(resource.meta.client, table_name=_TABLE)
    locks, pause = DynamoDBLockClient(resource, table_name=_TABLE), timedelta(seconds=PAUSE)

    def hold(key: str) -> None:
        locks.acquire_lock(key, retry_period=pause).release(best_effort=False)

    return hold


CONTENDERS: Mapping[str, Callable[[StoreOptions], LeaseCycle]] = {
    YARDSTICK: _leases,
    "leases on PostgreSQL": _leases,
    "boto3, conditional put and delete": _conditional_writes,
    OTHER: _python_dynamodb_lock,
}
"""Makes each contender, for the options of the store that its name ends with."""
