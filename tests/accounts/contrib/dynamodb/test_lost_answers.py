"""Connections that end after the server has carried a request out, and before its answer arrives."""

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import Settings

from accounts.contrib.dynamodb import DynamoAccount, chain_breaks
from django_lockstep.stores import StoreUnavailable
from tests.accounts.contrib.dynamodb.proxy import Proxy, proxy_to

pytestmark = pytest.mark.slow


@pytest.fixture
def losing(options: dict[str, Any], settings: Settings) -> Iterator[Proxy]:
    """A proxy that loses answers to transactions; an account with 100 is there."""
    DynamoAccount.open("ada", balance=100)
    with proxy_to(options["ENDPOINT_URL"]) as proxy:
        settings.LOCKSTEP_STORES = {"dynamodb": {**options, "ENDPOINT_URL": proxy.url}}
        proxy.operation = "TransactWriteItems"
        yield proxy


@pytest.mark.parametrize("key", [None, "payment"])
def test_a_change_whose_answer_was_lost_is_booked_once(losing: Proxy, key: str | None) -> None:
    losing.lost = 2
    account = DynamoAccount.withdraw("ada", 30, idempotency_key=key)
    assert losing.carried_out == 3
    assert account == DynamoAccount.get("ada")
    assert (account.balance, account.entry_count) == (70, 1)
    losing.lost = 1
    assert account.try_deposit(5)
    assert account == DynamoAccount.get("ada")
    assert list(chain_breaks()) == []


def test_a_transfer_whose_answer_was_lost_is_booked_once(losing: Proxy) -> None:
    DynamoAccount.open("bob")
    losing.lost = 1
    source, target = DynamoAccount.transfer("ada", "bob", 30)
    assert (source.balance, target.balance) == (70, 30)
    assert (source, target) == (DynamoAccount.get("ada"), DynamoAccount.get("bob"))


def test_with_a_key_a_caller_who_got_no_answer_asks_again(losing: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    losing.lost = 1000
    with monkeypatch.context() as patch, pytest.raises(StoreUnavailable):
        patch.setattr("django_lockstep.stores.dynamodb.items.CALL_TIMEOUT", 0.1)
        DynamoAccount.withdraw("ada", 30, idempotency_key="payment")
    losing.lost = 0
    account = DynamoAccount.withdraw("ada", 30, idempotency_key="payment")
    assert (account.balance, DynamoAccount.get("ada").entry_count) == (70, 1)
