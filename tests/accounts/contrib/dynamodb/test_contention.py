"""Worker processes on shared accounts; each gets the store's options, and says what came of its changes."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
from django.conf import settings

from accounts.contrib.dynamodb import DynamoAccount, account_breaks
from tests.support.processes import processes

pytestmark = pytest.mark.usefixtures("options")

OPERATIONS = {"deposit": DynamoAccount.deposit, "withdraw": DynamoAccount.withdraw}


@pytest.fixture(scope="module")
def pool(django_db_setup: None) -> Iterator[ProcessPoolExecutor]:
    """Four processes for all tests, started with the first work."""
    with processes(4) as pool:
        yield pool


def book(options: dict[str, Any], changes: Sequence[tuple[str, int, str | None]]) -> list[str]:
    """Make the changes, each an operation, an amount and a key; return the balances."""
    stores: dict[str, Any] = {"dynamodb": options}
    settings.LOCKSTEP_STORES = stores
    return [str(OPERATIONS[name]("ada", amount, idempotency_key=key).balance) for name, amount, key in changes]


def shuttle(options: dict[str, Any], source: str, target: str, times: int) -> None:
    """Transfer 1 so many times."""
    stores: dict[str, Any] = {"dynamodb": options}
    settings.LOCKSTEP_STORES = stores
    for _ in range(times):
        DynamoAccount.transfer(source, target, 1)


def balance_of(pk: str = "ada") -> int:
    account = DynamoAccount.get(pk)
    assert list(account_breaks(account)) == []
    return int(account.balance)


def test_four_processes_lose_no_change(options: dict[str, Any], pool: ProcessPoolExecutor) -> None:
    account = DynamoAccount.open("ada", balance=1000)
    changes = [("deposit", 10, None), ("withdraw", 7, None)] * 5
    running = [pool.submit(book, options, changes) for _ in range(4)]
    balances = [balance for worker in running for balance in worker.result()]
    assert balance_of() == 1000 + 4 * 5 * 3
    # Each of them saw a state of its own, and all of these are in the chain.
    account.refresh()
    assert sorted(str(entry.balance_after) for entry in account.entries()) == sorted(balances)
    assert account.entry_count == 40


def test_one_key_books_once_whoever_uses_it(options: dict[str, Any], pool: ProcessPoolExecutor) -> None:
    account = DynamoAccount.open("ada", balance=0)
    running = [pool.submit(book, options, [("deposit", 50, "payment")] * 3) for _ in range(4)]
    balances = [balance for worker in running for balance in worker.result()]
    assert balances == ["50.00"] * 12
    account.refresh()
    assert (account.balance, account.entry_count) == (50, 1)


def test_opposite_transfers_pass(options: dict[str, Any], pool: ProcessPoolExecutor) -> None:
    DynamoAccount.open("ada", balance=100)
    DynamoAccount.open("bob", balance=100)
    pairs = [("ada", "bob"), ("bob", "ada")] * 2
    for transfers in [pool.submit(shuttle, options, *pair, 5) for pair in pairs]:
        transfers.result()
    assert (balance_of("ada"), balance_of("bob")) == (100, 100)
