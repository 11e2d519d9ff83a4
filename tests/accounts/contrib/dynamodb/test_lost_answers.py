"""Connections that end after the server has carried a request out, and before its answer arrives."""

from dataclasses import dataclass
from typing import Any

import pytest

from accounts.contrib.dynamodb import DynamoAccount, chain_breaks
from django_lockstep.stores import StoreUnavailable

pytestmark = pytest.mark.slow


@dataclass
class Line:
    """The way to DynamoDB, which carries requests to transact out and loses the next answers to them."""

    lost: int = 0
    carried_out: int = 0


@pytest.fixture
def losing(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Line:
    """Such a line; an account with 100 is there."""
    from botocore.exceptions import ConnectionClosedError
    from botocore.httpsession import URLLib3Session

    DynamoAccount.open("ada", balance=100)
    line, send = Line(), URLLib3Session.send

    def send_and_lose(session: Any, request: Any) -> Any:
        answer = send(session, request)
        if "TransactWriteItems" in str(request.headers["X-Amz-Target"]):
            line.carried_out += 1
            if line.lost:
                line.lost -= 1
                raise ConnectionClosedError(endpoint_url=request.url)
        return answer

    monkeypatch.setattr(URLLib3Session, "send", send_and_lose)
    return line


@pytest.mark.parametrize("key", [None, "payment"])
def test_a_change_whose_answer_was_lost_is_booked_once(losing: Line, key: str | None) -> None:
    losing.lost = 2
    account = DynamoAccount.withdraw("ada", 30, idempotency_key=key)
    assert losing.carried_out == 3
    assert account == DynamoAccount.get("ada")
    assert (account.balance, account.entry_count) == (70, 1)
    losing.lost = 1
    assert account.try_deposit(5)
    assert account == DynamoAccount.get("ada")
    assert list(chain_breaks()) == []


def test_a_transfer_whose_answer_was_lost_is_booked_once(losing: Line) -> None:
    DynamoAccount.open("bob")
    losing.lost = 1
    source, target = DynamoAccount.transfer("ada", "bob", 30)
    assert (source.balance, target.balance) == (70, 30)
    assert (source, target) == (DynamoAccount.get("ada"), DynamoAccount.get("bob"))


def test_with_a_key_a_caller_who_got_no_answer_asks_again(losing: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    losing.lost = 1000
    with monkeypatch.context() as patch, pytest.raises(StoreUnavailable):
        patch.setattr("django_lockstep.stores.dynamodb.items.CALL_TIMEOUT", 0.1)
        DynamoAccount.withdraw("ada", 30, idempotency_key="payment")
    losing.lost = 0
    account = DynamoAccount.withdraw("ada", 30, idempotency_key="payment")
    assert (account.balance, DynamoAccount.get("ada").entry_count) == (70, 1)
