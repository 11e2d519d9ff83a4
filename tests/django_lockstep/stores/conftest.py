"""Both stores, each under the name ``tested``."""

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_django import Settings

from django_lockstep.leases import testing
from django_lockstep.stores import Store, get_store
from django_lockstep.stores.dynamodb.sightings import Sightings
from django_lockstep.stores.dynamodb.store import DynamoStore
from tests.support.dynamodb import CREDENTIALS, dynamodb_server

_numbers = itertools.count()


@pytest.fixture(scope="session")
def dynamodb_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a DynamoDB server for all tests of this process."""
    pytest.importorskip("boto3", reason="boto3 is not installed")
    pytest.importorskip("ministack", reason="ministack, the DynamoDB server of these tests, is not installed")
    with pytest.MonkeyPatch.context() as patch, dynamodb_server(tmp_path_factory.mktemp("dynamodb")) as url:
        for name, value in CREDENTIALS.items():
            patch.setitem(os.environ, name, value)
        yield url


@pytest.fixture
def dynamodb_options(dynamodb_url: str) -> dict[str, Any]:
    """Options of a DynamoDB store whose table does not exist yet."""
    return {"TABLE": f"lockstep_{next(_numbers)}", "REGION": "us-east-1", "ENDPOINT_URL": dynamodb_url}


@pytest.fixture(scope="session")
def dynamodb_table(dynamodb_url: str) -> dict[str, Any]:
    """Options of a DynamoDB store whose table exists: it takes half a second to make one."""
    options = {"TABLE": "lockstep", "REGION": "us-east-1", "ENDPOINT_URL": dynamodb_url}
    assert DynamoStore.from_options("tested", options).create()
    return options


@pytest.fixture
def dynamodb(dynamodb_table: dict[str, Any], settings: Settings) -> Iterator[DynamoStore]:
    """A DynamoDB store with an empty table, under the name ``tested``."""
    settings.LOCKSTEP_STORES = {"tested": dynamodb_table}
    store = get_store("tested")
    assert isinstance(store, DynamoStore)
    store.sightings = Sightings()
    client = store.client
    yield store
    for item in client.scan(TableName=store.table)["Items"]:
        client.delete_item(TableName=store.table, Key={"pk": item["pk"]})


@pytest.fixture(params=["postgresql", "dynamodb"])
def options(request: pytest.FixtureRequest, transactional_db: None, settings: Settings) -> dict[str, Any]:
    """The options of each store; other processes make the same one of them."""
    if request.param == "dynamodb":
        request.getfixturevalue("dynamodb")
        return dict(settings.LOCKSTEP_STORES["tested"])
    settings.LOCKSTEP_STORES = {"tested": {"BACKEND": "postgresql"}}
    return {"BACKEND": "postgresql"}


@pytest.fixture
def store(options: dict[str, Any]) -> Store:
    return get_store("tested")


@pytest.fixture
def expire(store: Store) -> Callable[[str], None]:
    """Let a lease be expired for this process, as if its ttl had passed without a sign of life."""
    return lambda key: testing.expire(key, store="tested")
