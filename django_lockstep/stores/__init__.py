"""Stores: one contract for leases and conditional writes, on PostgreSQL and on Amazon DynamoDB.

Import from here; the modules behind it may move. ``LOCKSTEP_STORES`` names the stores, `get_store` returns one.
"""

from typing import TYPE_CHECKING

from django_lockstep.lazy import lazy_exports

if TYPE_CHECKING:
    from django_lockstep.stores.conf import get_store
    from django_lockstep.stores.errors import OutcomeUnknown, StoreError, StoreRefused, StoreUnavailable, TokenReused
    from django_lockstep.stores.protocol import LeaseStore, Store
    from django_lockstep.stores.terms import Claim, Grant, Holder, claim
    from django_lockstep.stores.writes import Delete, Item, Outcome, Put, Update

__all__ = [
    "Claim",
    "Delete",
    "Grant",
    "Holder",
    "Item",
    "LeaseStore",
    "Outcome",
    "OutcomeUnknown",
    "Put",
    "Store",
    "StoreError",
    "StoreRefused",
    "StoreUnavailable",
    "TokenReused",
    "Update",
    "claim",
    "get_store",
]

__getattr__ = lazy_exports(__name__, "errors", "terms", "writes", "protocol", "conf")
