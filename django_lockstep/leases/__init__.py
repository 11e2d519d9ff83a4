"""Leases: named locks with a time to live on the database's clock, and with a token that writes check.

Import from here; the modules behind it may move. The model is `django_lockstep.leases.models.Lease`.
"""

from typing import TYPE_CHECKING

from django_lockstep.lazy import lazy_exports

if TYPE_CHECKING:
    from django_lockstep.leases.blocks import exclusive, lease
    from django_lockstep.leases.errors import LeaseError, LeaseLost, LeaseNotAcquired, LeaseTimedOut, StaleToken
    from django_lockstep.leases.fencing import FencedManager, FencedModel, FencedQuerySet
    from django_lockstep.leases.handles import LeaseHandle, assert_held
    from django_lockstep.leases.stores import guard
    from django_lockstep.stores.terms import Holder

__all__ = [
    "FencedManager",
    "FencedModel",
    "FencedQuerySet",
    "Holder",
    "LeaseError",
    "LeaseHandle",
    "LeaseLost",
    "LeaseNotAcquired",
    "LeaseTimedOut",
    "StaleToken",
    "assert_held",
    "exclusive",
    "guard",
    "lease",
]

__getattr__, __dir__ = lazy_exports(__name__, "errors", "fencing", ".stores.terms", "stores", "handles", "blocks")
