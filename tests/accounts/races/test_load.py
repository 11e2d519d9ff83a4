"""The load of one worker, without a database."""

from decimal import Decimal
from typing import Any

import pytest

from accounts.races.load import AccountClient, Mix, Workload
from django_lockstep.errors import DeadlockDetected, StaleVersionError
from django_lockstep.lab.simulator.tally import LoadOperation


class RecordingStrategy:
    """Stands for a strategy and remembers what it was asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def deposit(self, *args: Any) -> None:
        self.calls.append(("deposit", *args))

    def withdraw(self, *args: Any) -> None:
        self.calls.append(("withdraw", *args))

    def transfer(self, *args: Any) -> None:
        self.calls.append(("transfer", *args))


def client(mix: Mix, *, seed: object = 0) -> tuple[AccountClient, RecordingStrategy]:
    import random

    recorder: Any = RecordingStrategy()
    return AccountClient(recorder, (1, 2, 3), mix=mix, draws=random.Random(str(seed))), recorder


def drawn(mix: Mix, *, seed: object = 0) -> tuple[list[LoadOperation], list[tuple[Any, ...]]]:
    worker, recorder = client(mix, seed=seed)
    operations = [worker.next_operation() for _ in range(200)]
    for operation in operations:
        operation.perform()
    return operations, recorder.calls


def test_every_operation_lists_its_changes() -> None:
    for operation, call in zip(*drawn(Mix(transfer=1)), strict=True):
        amount = call[-1]
        expected = {
            "deposit": ((call[1], amount),),
            "withdraw": ((call[1], -amount),),
            "transfer": ((call[1], -amount), (call[2], amount)),
        }
        assert operation.changes == expected[call[0]]


def test_amounts_are_what_the_report_says() -> None:
    _, calls = drawn(Mix())
    amounts = [call[-1] for call in calls]
    assert Decimal("1.00") <= min(amounts) < max(amounts) <= Decimal("100.00")
    assert all(amount == round(amount, 2) for amount in amounts)


def test_a_transfer_has_two_accounts() -> None:
    _, calls = drawn(Mix(deposit=0, withdraw=0, transfer=1))
    assert {call[0] for call in calls} == {"transfer"}
    assert all(call[1] != call[2] for call in calls)


def test_weights_decide_what_is_drawn() -> None:
    _, calls = drawn(Mix(deposit=9, withdraw=1))
    deposits = sum(call[0] == "deposit" for call in calls)
    assert 150 < deposits < 200


def test_the_same_seed_draws_the_same() -> None:
    assert drawn(Mix(transfer=1), seed=3)[1] == drawn(Mix(transfer=1), seed=3)[1]
    assert drawn(Mix(transfer=1), seed=3)[1] != drawn(Mix(transfer=1), seed=4)[1]


def test_retries_are_conflicts_or_deadlocks() -> None:
    worker, _ = client(Mix())
    for error in (StaleVersionError(), DeadlockDetected(), StaleVersionError()):
        worker.count_retry(error=error, attempt=1, wait=0.0)
    assert (worker.conflicts, worker.deadlocks) == (2, 1)


def test_transfers_need_two_accounts() -> None:
    with pytest.raises(ValueError, match="add --accounts 2 or more"):
        Workload(accounts=1, mix=Mix(transfer=1), seed=0)
