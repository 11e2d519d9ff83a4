"""Stores: one contract for leases on a database and on Amazon DynamoDB, and conditional writes on DynamoDB.

Import from here; the modules behind it may move. ``LOCKSTEP_STORES`` names the stores, `get_store` returns one.
"""

from typing import TYPE_CHECKING

from django_lockstep.lazy import lazy_exports

if TYPE_CHECKING:
    from django_lockstep.stores.conf import get_store
    from django_lockstep.stores.dynamodb.store import DynamoStore
    from django_lockstep.stores.dynamodb.writes import Delete, Item, Outcome, Put, Update
    from django_lockstep.stores.errors import StoreError, StoreRefused, StoreUnavailable, TokenReused
    from django_lockstep.stores.protocol import LeaseStore
    from django_lockstep.stores.terms import Claim, Grant, Holder, claim

__all__ = [
    "Claim",
    "Delete",
    "DynamoStore",
    "Grant",
    "Holder",
    "Item",
    "LeaseStore",
    "Outcome",
    "Put",
    "StoreError",
    "StoreRefused",
    "StoreUnavailable",
    "TokenReused",
    "Update",
    "claim",
    "get_store",
]

__getattr__, __dir__ = lazy_exports(
    __name__, "errors", "terms", "dynamodb.writes", "protocol", "conf", "dynamodb.store"
)
