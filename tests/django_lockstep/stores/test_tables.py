"""The table of a store on DynamoDB: its checks, and ``create_stores``."""

from io import StringIO
from typing import Any

import pytest
from django.core.checks import Tags, run_checks
from django.core.management import CommandError, call_command
from pytest_django import Settings

from django_lockstep.stores import get_store
from django_lockstep.stores.checks import check_stores, check_tables
from django_lockstep.stores.dynamodb.store import DynamoStore


def test_nothing_is_asked_without_a_database_check(dynamodb_options: dict[str, Any], settings: Settings) -> None:
    settings.LOCKSTEP_STORES = {"tested": {**dynamodb_options, "ENDPOINT_URL": "http://127.0.0.1:9", "TIMEOUT": 0.1}}
    assert run_checks(tags=[Tags.database], databases=[]) == []
    assert check_stores(None) == []


def test_a_missing_table_and_another_key(dynamodb_options: dict[str, Any], settings: Settings) -> None:
    settings.LOCKSTEP_STORES = {"tested": dynamodb_options}
    (missing,) = check_tables(None, databases=["default"])
    assert (missing.id, missing.obj) == ("lockstep.E052", "tested")
    assert "does not exist" in missing.msg
    store = get_store("tested")
    assert isinstance(store, DynamoStore)
    store.client.create_table(
        TableName=store.table,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "N"}],
        BillingMode="PAY_PER_REQUEST",
    )
    (other,) = check_tables(None, databases=["default"])
    assert "another key than the string 'pk' alone" in other.msg
    with pytest.raises(CommandError, match="another key"):
        call_command("create_stores", "tested", stdout=StringIO())


def test_a_server_that_cannot_be_asked_is_a_warning(
    dynamodb_options: dict[str, Any], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_lockstep.stores.dynamodb.store.CALL_TIMEOUT", 0.01)
    settings.LOCKSTEP_STORES = {"tested": {**dynamodb_options, "ENDPOINT_URL": "http://127.0.0.1:9", "TIMEOUT": 0.1}}
    (message,) = check_tables(None, databases=["default"])
    assert message.id == "lockstep.W050"


def test_create_stores(dynamodb_options: dict[str, Any], settings: Settings) -> None:
    settings.LOCKSTEP_STORES = {"tested": dynamodb_options}
    out = StringIO()
    call_command("create_stores", stdout=out)
    call_command("create_stores", "tested", stdout=out)
    first, second = out.getvalue().splitlines()
    assert first.endswith("of store 'tested': created.")
    assert second.endswith("of store 'tested': exists.")
    assert check_tables(None, databases=["default"]) == []
