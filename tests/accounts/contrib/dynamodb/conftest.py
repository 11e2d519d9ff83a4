"""Accounts on both stores, under the name ``dynamodb``."""

from typing import Any

import pytest
from pytest_django import Settings

from django_lockstep.stores.dynamodb.store import DynamoStore


@pytest.fixture
def on_dynamodb(dynamodb: DynamoStore, dynamodb_table: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """The options of a store on DynamoDB, whose table is empty."""
    settings.LOCKSTEP_STORES = {"dynamodb": dynamodb_table}
    return dynamodb_table


@pytest.fixture(params=["postgresql", pytest.param("dynamodb", marks=pytest.mark.slow)])
def options(request: pytest.FixtureRequest, transactional_db: None, settings: Settings) -> dict[str, Any]:
    """The options of each store; other processes make the same one of them."""
    if request.param == "dynamodb":
        chosen: dict[str, Any] = request.getfixturevalue("on_dynamodb")
        return chosen
    settings.LOCKSTEP_STORES = {"dynamodb": {"BACKEND": "postgresql"}}
    return {"BACKEND": "postgresql"}
