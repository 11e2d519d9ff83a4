"""Leases: named locks with a time to live, on the database's clock, with a token that the write itself checks.

Import from here; the modules behind it may move. The model is `django_lockstep.leases.models.Lease`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_lockstep.leases.blocks import exclusive, lease
    from django_lockstep.leases.errors import LeaseError, LeaseLost, LeaseNotAcquired, LeaseTimedOut, StaleToken
    from django_lockstep.leases.fencing import FencedManager, FencedModel, FencedQuerySet
    from django_lockstep.leases.guards import guard
    from django_lockstep.leases.handles import LeaseHandle
    from django_lockstep.leases.terms import Holder

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
    "exclusive",
    "guard",
    "lease",
]

_HOMES = {
    "blocks": ("exclusive", "lease"),
    "errors": ("LeaseError", "LeaseLost", "LeaseNotAcquired", "LeaseTimedOut", "StaleToken"),
    "fencing": ("FencedManager", "FencedModel", "FencedQuerySet"),
    "guards": ("guard",),
    "handles": ("LeaseHandle",),
    "terms": ("Holder",),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: Django imports this package before models can be."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
