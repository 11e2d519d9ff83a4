"""Stores: one contract for leases on a database and on Amazon DynamoDB, and conditional writes on DynamoDB.

Import from here; the modules behind it may move. ``LOCKSTEP_STORES`` names the stores.
"""

from typing import TYPE_CHECKING

from django_lockstep.lazy import lazy_exports

if TYPE_CHECKING:
    from django_lockstep.stores.dynamodb.store import DynamoStore
    from django_lockstep.stores.dynamodb.writes import Delete, Item, Outcome, Put, Update
    from django_lockstep.stores.errors import StoreError, StoreRefused, StoreUnavailable, TokenReused

__all__ = [
    "Delete",
    "DynamoStore",
    "Item",
    "Outcome",
    "Put",
    "StoreError",
    "StoreRefused",
    "StoreUnavailable",
    "TokenReused",
    "Update",
]

__getattr__, __dir__ = lazy_exports(__name__, "errors", "dynamodb.writes", "dynamodb.store")
