"""Accounts in a store under the name ``dynamodb``."""

from typing import Any

import pytest
from pytest_django import Settings

from django_lockstep.stores.dynamodb.store import DynamoStore


@pytest.fixture
def options(dynamodb: DynamoStore, dynamodb_table: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """The options of the store, whose table is empty; other processes make the same store of them."""
    settings.LOCKSTEP_STORES = {"dynamodb": dynamodb_table}
    return dynamodb_table
