"""``LOCKSTEP_STORES``, read when a store is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from django_lockstep.stores.protocol import LeaseStore

_BACKENDS = {
    # By name, because the database's store stands on leases, which stand on this package.
    "dynamodb": "django_lockstep.stores.dynamodb.store.DynamoStore",
    "postgresql": "django_lockstep.leases.stores.store_from_options",
}


def configured_stores() -> dict[str, Mapping[str, Any]]:
    """Return the options of all stores by name; ``postgresql``, the default database, is always among them."""
    return {"postgresql": {"BACKEND": "postgresql"}, **getattr(settings, "LOCKSTEP_STORES", {})}


def get_store(name: str) -> LeaseStore:
    """Return the store of this name; the same object as long as its options are the same.

    Raises ``ImproperlyConfigured`` for an unknown name and for wrong options.
    """
    stores = configured_stores()
    if name not in stores:
        raise ImproperlyConfigured(f"LOCKSTEP_STORES has no store {name!r}; there are {', '.join(sorted(stores))}")
    options = stores[name]
    if not isinstance(options, Mapping):
        raise ImproperlyConfigured(f"LOCKSTEP_STORES[{name!r}] must be a mapping of options, not {options!r}")
    entry = _stores.get(name)
    if entry is None or entry[0] != options:
        entry = _stores[name] = (dict(options), _make(name, dict(options)))
    return entry[1]


_stores: dict[str, tuple[Mapping[str, Any], LeaseStore]] = {}
"""The stores in use by name, with their options."""


def _make(name: str, options: dict[str, Any]) -> LeaseStore:
    backend = options.pop("BACKEND", "dynamodb")
    if backend not in _BACKENDS:
        raise ImproperlyConfigured(
            f"LOCKSTEP_STORES[{name!r}]['BACKEND'] must be one of {', '.join(sorted(_BACKENDS))}, not {backend!r}"
        )
    try:
        return cast("LeaseStore", import_string(_BACKENDS[backend])(name, options))
    except (TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"LOCKSTEP_STORES[{name!r}]: {error}") from error
