"""What each worker of a simulation does, and how a sweep of sizes runs and is reported."""

import json
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import Account, Entry
from accounts.races.load import AccountClient, Mix, Workload
from accounts.races.run import RunConfig, run_load
from django_lockstep.errors import DeadlockDetected, StaleVersionError
from django_lockstep.lab.simulator.interrupt import StopSignal
from django_lockstep.lab.simulator.load_plan import LoadPlan, Sweep
from django_lockstep.lab.simulator.render import as_json, as_table
from django_lockstep.lab.simulator.report import LoadReport
from django_lockstep.lab.simulator.tally import LoadOperation
from tests.django_lockstep.lab.sample_rows import LOST, naive, row, sweep_report


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


@pytest.mark.parametrize("text", ["1:1:0", "2:1:0.5", "0:0:3"])
def test_mix_is_written_as_it_is_read_in_the_order_of_its_name(text: str) -> None:
    mix = Mix.parse(text)
    assert str(mix) == text == f"{mix.deposit:g}:{mix.withdraw:g}:{mix.transfer:g}"


def test_default_mix_has_transfers_only_where_there_are_two_accounts() -> None:
    assert Mix.default(accounts=1).transfer == 0
    assert Mix.default(accounts=2).transfer > 0


@given(workers=st.integers(1, 40), rounds=st.integers(1, 5), more=st.integers(0, 500))
def test_operations_are_shared_out_among_workers_and_rounds(workers: int, rounds: int, more: int) -> None:
    plan = LoadPlan(workers=workers, rounds=rounds, duration=None, operations=workers * rounds + more)
    numbers = product(range(rounds), range(workers))
    parts = [plan.operations_of(worker, round_number=round_number) or 0 for round_number, worker in numbers]
    assert sum(parts) == plan.operations
    assert max(parts) - min(parts) <= 1


def test_retries_are_conflicts_or_deadlocks() -> None:
    worker, _ = client(Mix())
    for error in (StaleVersionError(), DeadlockDetected(), StaleVersionError()):
        worker.count_retry(error=error, attempt=1, wait=0.0)
    assert (worker.conflicts, worker.deadlocks) == (2, 1)


# A sweep: what is asked for, how it runs, and what is said of it


WORKLOAD = Workload(accounts=1, mix=Mix(), seed=4)


# For real.


def swept(text: str, *names: str, plan: LoadPlan) -> LoadReport:
    sweep, config = Sweep.parse(text), RunConfig(strategies=names, model=Account, using="default")
    with StopSignal() as interrupt:
        return run_load(config, plan=plan, workload=WORKLOAD, sweep=sweep, interrupt=interrupt, terminal=None)


@pytest.mark.django_db(transaction=True)
def test_workers_are_as_many_as_each_size_says() -> None:
    report = swept(
        "workers=1,3", "naive", "optimistic", plan=LoadPlan(workers=3, duration=None, operations=300, rounds=2)
    )
    assert [(row.size, row.strategy) for row in report.rows] == [
        (1, "naive"),
        (1, "optimistic"),
        (3, "naive"),
        (3, "optimistic"),
    ]
    assert [row.workers for row in report.rows] == [1, 1, 3, 3]
    assert {row.tally.operations for row in report.rows} == {300}
    assert [row.status for row in report.rows] == ["correct", "correct", "lost", "correct"]
    assert not Entry.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_accounts_are_as_many_as_each_size_says() -> None:
    report = swept("accounts=1,4", "pessimistic", plan=LoadPlan(workers=2, duration=None, operations=40))
    assert [(row.size, row.status, row.workers) for row in report.rows] == [(1, "correct", 2), (4, "correct", 2)]
    assert not Account.objects.exists()


# What is said of it.

REPORT = sweep_report(
    (1, naive(verdict=row("x").verdict), row("a", rate=500), row("b", rate=300)),
    (2, naive(), row("a", rate=450), row("b", rate=320)),
    (8, naive(), row("a", rate=200, p99=None), row("b", rate=330)),
)


def test_advice_names_the_best_at_each_size_and_where_it_stops_to_grow() -> None:
    assert REPORT.advice == (
        "With 1 to 2 workers use a: 450/s, p99 10.0 ms with 2.",
        "With 8 workers use b: 330/s, p99 10.0 ms.",
        "a is fastest with 1 worker, and has 40% of that rate with 8.",
        "naive was wrong with 2 and 8 workers.",
    )


def test_a_table_has_a_column_for_each_size() -> None:
    text = as_table(REPORT)
    lines = [line.split() for line in text.splitlines()]
    assert ["Workers:", "1", "2", "8"] in lines
    assert ["naive", "100", "x", "100", "x", "100"] in lines
    assert ["a", "500", "450", "200"] in lines
    assert ["a", "10.0", "10.0", "-"] in lines
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()


def test_a_broken_promise_is_reported_with_its_size() -> None:
    text = as_table(sweep_report((4, row("liar", verdict=LOST))))
    assert "4 workers: liar lost 812 of 1,000 updates" in text


def test_an_interrupted_sweep_shows_what_it_has() -> None:
    part = sweep_report((1, row("a")), values=(1, 2), planned=("a", "b"), interrupted="SIGINT")
    text = as_table(part)
    assert "Interrupted by SIGINT: 1 of 4 rows were measured." in text
    assert ["b"] in [line.split() for line in text.splitlines()]


def test_json_has_the_figures_by_size() -> None:
    data = json.loads(as_json(REPORT))
    assert (data["schema_version"], data["kind"], data["sweep"]) == (
        2,
        "sweep",
        {"axis": "workers", "values": [1, 2, 8]},
    )
    assert [point["workers"] for point in data["points"]] == [1, 2, 8]
    assert Decimal(data["points"][1]["strategies"][0]["money_lost"]) > 0
