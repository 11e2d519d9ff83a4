"""Both stores, each under the name ``tested``; and what is used on other databases than PostgreSQL, as ``portable``."""

from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import Settings

from django_lockstep.leases import stores, testing
from django_lockstep.leases.portable import PortableLeases
from django_lockstep.stores.conf import get_store
from django_lockstep.stores.protocol import LeaseStore


@pytest.fixture(params=["postgresql", pytest.param("dynamodb", marks=pytest.mark.slow)])
def options(
    request: pytest.FixtureRequest, transactional_db: None, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The options of each store; other processes make the same one of them."""
    if request.param == "dynamodb":
        request.getfixturevalue("dynamodb")
        return dict(settings.LOCKSTEP_STORES["tested"])
    # A store with the same options, made for the parameter before, would be taken again.
    monkeypatch.setattr("django_lockstep.stores.conf._stores", {})
    if request.param == "portable":
        monkeypatch.setattr(stores, "PostgresLeases", PortableLeases)
    settings.LOCKSTEP_STORES = {"tested": {"BACKEND": "postgresql"}}
    return {"BACKEND": "postgresql"}


@pytest.fixture
def store(options: dict[str, Any]) -> LeaseStore:
    return get_store("tested")


@pytest.fixture
def expire(store: LeaseStore) -> Callable[[str], None]:
    """Let a lease be expired for this process, as if its ttl had passed without a sign of life."""
    return lambda key: testing.expire(key, store="tested")
