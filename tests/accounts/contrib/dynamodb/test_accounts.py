"""The account on both stores: what each method writes, answers and refuses."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError

from accounts.contrib.dynamodb import DynamoAccount, account_breaks
from accounts.contrib.dynamodb.entries import account_key
from accounts.errors import IdempotencyKeyReused, InsufficientFunds, InvalidAmount
from django_lockstep.stores import DynamoStore, StoreUnavailable
from tests.support.sessions import PATIENCE

pytestmark = pytest.mark.usefixtures("options")


def opened(pk: str = "ada", *, balance: Any = 100, limit: Any = 0) -> DynamoAccount:
    return DynamoAccount.open(pk, balance=balance, overdraft_limit=limit)


def current(pk: str = "ada") -> DynamoAccount:
    """Return the account, whose balance is what its entries say."""
    account = DynamoAccount.get(pk)
    assert list(account_breaks(account)) == []
    return account


def entries(pk: str = "ada") -> list[tuple[str, str]]:
    return [(str(entry.amount), str(entry.balance_after)) for entry in current(pk).entries()]


def test_an_account_is_what_it_was_opened_with() -> None:
    account = opened(balance="12.50", limit=500)
    assert account == DynamoAccount.get("ada")
    assert (str(account.balance), str(account.overdraft_limit), account.entry_count) == ("12.50", "500.00", 0)
    assert list(account.entries()) == []


def test_a_name_is_taken_once() -> None:
    opened()
    with pytest.raises(IntegrityError, match="already has an account 'ada'"):
        opened(balance=7)
    assert current().balance == 100


@pytest.mark.parametrize("pk", ["", "a#b", "x" * 101, 7, None])
def test_what_cannot_be_a_name_is_refused(pk: Any) -> None:
    with pytest.raises(ValueError, match="1 to 100 characters without '#', not "):
        opened(pk)
    with pytest.raises(ValueError, match="1 to 100 characters"):
        DynamoAccount.deposit(pk, 1)


def test_an_account_that_is_not_there_does_not_exist() -> None:
    account = opened()
    assert DynamoStore.named("dynamodb").delete_if_unchanged(account_key("ada"), version=account.version)
    for change in (account.try_deposit, account.try_withdraw, lambda amount: DynamoAccount.withdraw("ada", amount)):
        with pytest.raises(DynamoAccount.DoesNotExist, match="has no account 'ada'") as error:
            change(200)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)  # noqa: S301 - our own


# Until it is done.


def test_changes_write_the_account_and_an_entry() -> None:
    version = opened().version
    account = DynamoAccount.deposit("ada", "50.25")
    assert (account.balance, account.version) == (Decimal("150.25"), version + 1)
    account = DynamoAccount.withdraw("ada", 30)
    assert account == current()
    assert entries() == [("-30.00", "120.25"), ("50.25", "150.25")]
    assert [entry.version_after for entry in account.entries()] == [version + 2, version + 1]


def test_the_overdraft_limit_may_be_used_up_but_not_more() -> None:
    opened(limit=500)
    assert DynamoAccount.withdraw("ada", 600).balance == -500
    with pytest.raises(InsufficientFunds, match="Account 'ada' has -500.00") as caught:
        DynamoAccount.withdraw("ada", "0.01")
    refused = (caught.value.balance, caught.value.overdraft_limit, caught.value.amount)
    assert refused == (Decimal(-500), Decimal(500), Decimal("0.01"))
    assert entries() == [("-600.00", "-500.00")]


def test_a_balance_that_would_not_fit_is_refused() -> None:
    opened(balance="99999999999999999.00")
    with pytest.raises(InvalidAmount, match="a balance has at most 17 digits"):
        DynamoAccount.deposit("ada", 1)
    assert str(DynamoAccount.deposit("ada", "0.99").balance) == "99999999999999999.99"


@pytest.mark.parametrize("amount", [0, -1, "0.001", 0.5, "NaN", None])
def test_what_is_no_amount_is_refused(amount: Any) -> None:
    account = opened()
    for change in (account.try_deposit, account.try_withdraw, lambda value: DynamoAccount.deposit("ada", value)):
        with pytest.raises(InvalidAmount):
            change(amount)
    assert entries() == []


def test_a_transfer_moves_between_two_accounts() -> None:
    opened(), opened("bob", balance=0)
    source, target = DynamoAccount.transfer("ada", "bob", 40)
    assert (source, target) == (current("ada"), current("bob"))
    assert (source.balance, target.balance) == (60, 40)
    (taken,), (received,) = source.entries(), target.entries()
    assert taken.transfer == received.transfer is not None
    assert (taken.amount, received.amount) == (-40, 40)


def test_a_transfer_is_whole_or_not_at_all() -> None:
    opened(), opened("bob", balance=0)
    with pytest.raises(InsufficientFunds):
        DynamoAccount.transfer("ada", "bob", 101)
    with pytest.raises(DynamoAccount.DoesNotExist):
        DynamoAccount.transfer("ada", "eve", 1)
    with pytest.raises(ValueError, match="A transfer needs two accounts"):
        DynamoAccount.transfer("ada", "ada", 1)
    assert (entries("ada"), entries("bob")) == ([], [])


# Once.


def test_the_first_of_two_is_booked_and_the_second_is_told() -> None:
    first = opened()
    second = DynamoAccount.get("ada")
    assert first.try_withdraw(30) is True
    assert first == current()
    before = pickle.dumps(second)
    assert second.try_deposit(50) is False
    assert pickle.dumps(second) == before
    second.refresh()
    assert second.try_deposit(50) is True
    assert entries() == [("50.00", "120.00"), ("-30.00", "70.00")]


def test_a_stale_balance_refuses_nothing() -> None:
    stale = opened()
    DynamoAccount.deposit("ada", 100)
    assert stale.try_withdraw(150) is False
    stale.refresh()
    assert stale.try_withdraw(150) is True
    with pytest.raises(InsufficientFunds):
        stale.try_withdraw(51)


# Many at once.


def book_three_times(source: str, target: str) -> None:
    for _ in range(3):
        DynamoAccount.deposit(source, 10)
        DynamoAccount.withdraw(source, 7)
        DynamoAccount.deposit("ada", 50, idempotency_key="payment")
        DynamoAccount.transfer(source, target, 1)


def test_many_at_once_lose_no_change_and_book_a_key_once() -> None:
    opened(), opened("bob")
    with ThreadPoolExecutor(4) as callers:
        for answer in [callers.submit(book_three_times, *pair) for pair in [("ada", "bob"), ("bob", "ada")] * 2]:
            answer.result(PATIENCE)
    changes = 2 * 3 * (10 - 7)
    assert (current().balance, current("bob").balance) == (100 + changes + 50, 100 + changes)


# Idempotency keys.


def test_a_key_books_once_and_answers_the_same() -> None:
    stale = opened()
    first = DynamoAccount.deposit("ada", 50, idempotency_key="one")
    DynamoAccount.withdraw("ada", 20)
    again = DynamoAccount.deposit("ada", 50, idempotency_key="one")
    assert (again.balance, again.version) == (first.balance, first.version) == (150, first.version)
    assert again.try_deposit(50, idempotency_key="one") is True
    assert again.try_deposit(1) is False  # its version is the one of that time
    assert stale.try_deposit(50, idempotency_key="one") is True
    assert stale == again  # with what it was not read with, too
    assert entries() == [("-20.00", "130.00"), ("50.00", "150.00")]


def test_a_withdrawal_that_is_repeated_needs_no_funds() -> None:
    opened()
    for _ in range(2):
        assert DynamoAccount.withdraw("ada", 100, idempotency_key="all").balance == 0
    account = current()
    assert account.try_withdraw(100, idempotency_key="all") is True
    assert len(entries()) == 1


def test_a_transfer_that_is_repeated_answers_the_same() -> None:
    opened(), opened("bob", balance=0)
    first = DynamoAccount.transfer("ada", "bob", 40, idempotency_key="rent")
    DynamoAccount.deposit("bob", 5)
    again = DynamoAccount.transfer("ada", "bob", 40, idempotency_key="rent")
    assert [(row.balance, row.version) for row in again] == [(row.balance, row.version) for row in first]
    assert (len(entries("ada")), len(entries("bob"))) == (1, 2)


def test_a_key_belongs_to_one_operation() -> None:
    opened(), opened("bob"), opened("eve")
    DynamoAccount.deposit("ada", 10, idempotency_key="d")
    DynamoAccount.transfer("ada", "bob", 10, idempotency_key="t")
    for reused in (
        lambda: DynamoAccount.deposit("ada", 11, idempotency_key="d"),
        lambda: DynamoAccount.withdraw("ada", 10, idempotency_key="d"),
        lambda: DynamoAccount.withdraw("ada", 10, idempotency_key="t"),
        lambda: DynamoAccount.transfer("ada", "eve", 10, idempotency_key="t"),
        lambda: current().try_withdraw(10, idempotency_key="t"),
    ):
        with pytest.raises(IdempotencyKeyReused):
            reused()
    assert (len(entries("ada")), len(entries("bob")), len(entries("eve"))) == (2, 1, 0)


def test_a_key_is_of_one_account_and_no_number_of_an_entry() -> None:
    opened(), opened("bob")
    DynamoAccount.deposit("ada", 1, idempotency_key="k")
    DynamoAccount.deposit("bob", 2, idempotency_key="k")
    (arrived,) = (DynamoAccount.transfer("ada", "bob", 5)[1].entries().__next__(),)
    DynamoAccount.deposit("bob", 3, idempotency_key=arrived.transfer)
    assert [amount for amount, _ in entries("bob")] == ["3.00", "5.00", "2.00"]


@pytest.mark.parametrize("key", ["", "x" * 256, "x" * 250, "\0", 7])
def test_what_is_no_key_is_refused(key: Any) -> None:
    account = opened()
    for change in (account.try_deposit, lambda amount, **more: DynamoAccount.transfer("ada", "bob", amount, **more)):
        with pytest.raises(ValueError, match="must"):
            change(1, idempotency_key=key)
    assert entries() == []


# Connections that end after the server has carried a request out, and before its answer arrives


@dataclass
class Line:
    """The way to DynamoDB, which carries requests to transact out and loses the next answers to them."""

    lost: int = 0


@pytest.fixture
def losing(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Line:
    """Such a line; an account with 100 is there."""
    from botocore.exceptions import ConnectionClosedError
    from botocore.httpsession import URLLib3Session

    DynamoAccount.open("ada", balance=100)
    line, send = Line(), URLLib3Session.send

    def send_and_lose(session: Any, request: Any) -> Any:
        answer = send(session, request)
        if line.lost and "TransactWriteItems" in str(request.headers["X-Amz-Target"]):
            line.lost -= 1
            raise ConnectionClosedError(endpoint_url=request.url)
        return answer

    monkeypatch.setattr(URLLib3Session, "send", send_and_lose)
    return line


def test_with_a_key_a_caller_who_got_no_answer_asks_again(losing: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    losing.lost = 1000
    with monkeypatch.context() as patch, pytest.raises(StoreUnavailable):
        patch.setattr("django_lockstep.stores.dynamodb.items.CALL_TIMEOUT", 0.1)
        DynamoAccount.withdraw("ada", 30, idempotency_key="payment")
    losing.lost = 0
    account = DynamoAccount.withdraw("ada", 30, idempotency_key="payment")
    assert (account.balance, DynamoAccount.get("ada").entry_count) == (70, 1)
