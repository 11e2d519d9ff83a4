"""Fixtures for stores on DynamoDB: the server is started when the first test needs it, once in each process.

A plugin of pytest, because tests of several rooms use it. They are marked ``slow``, by their place or by a parameter.
"""

import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from pytest_django import Settings

from django_lockstep.stores import get_store
from django_lockstep.stores.dynamodb.sightings import Sightings
from django_lockstep.stores.dynamodb.store import DynamoStore
from tests.support.dynamodb import CREDENTIALS, ServerMissingError, dynamodb_server

_numbers = itertools.count()


@pytest.fixture(scope="session")
def dynamodb_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server for all tests of this process."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in CREDENTIALS.items():
            patch.setitem(os.environ, name, value)
        try:
            import boto3  # noqa: F401 - whether it is there

            url = stack.enter_context(dynamodb_server(tmp_path_factory.mktemp("dynamodb")))
        except (ImportError, ServerMissingError) as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"no DynamoDB: {error}")
        yield url


@pytest.fixture
def dynamodb_options(dynamodb_url: str) -> dict[str, Any]:
    """Options of a store whose table does not exist yet."""
    return {"TABLE": f"lockstep_{next(_numbers)}", "REGION": "us-east-1", "ENDPOINT_URL": dynamodb_url}


@pytest.fixture(scope="session")
def dynamodb_table(dynamodb_url: str) -> dict[str, Any]:
    """Options of a store whose table exists: it takes half a second to make one."""
    options = {"TABLE": "lockstep", "REGION": "us-east-1", "ENDPOINT_URL": dynamodb_url}
    assert DynamoStore.from_options("tested", options).create()
    return options


@pytest.fixture
def dynamodb(dynamodb_table: dict[str, Any], settings: Settings) -> Iterator[DynamoStore]:
    """A store with an empty table, under the name ``tested``."""
    settings.LOCKSTEP_STORES = {"tested": dynamodb_table}
    store = get_store("tested")
    assert isinstance(store, DynamoStore)
    store.sightings = Sightings()
    client = store.client
    yield store
    for item in client.scan(TableName=store.table)["Items"]:
        client.delete_item(TableName=store.table, Key={"pk": item["pk"]})
