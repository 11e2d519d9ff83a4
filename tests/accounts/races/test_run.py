"""Real processes on the real database: which strategies lose money, which do not, and what is reported."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from accounts.models import Account, Entry
from accounts.races.fixture import Fixture, new_name
from accounts.races.load import AccountTrial, Mix, Workload
from accounts.races.run import NAMES, RunConfig, run_load
from accounts.strategies import STRATEGIES
from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.interrupt import StopSignal
from django_lockstep.lab.simulator.load_plan import LoadPlan
from django_lockstep.lab.simulator.pool import WorkerPool
from django_lockstep.lab.simulator.report import LoadReport, LoadRow
from django_lockstep.lab.simulator.trials import LoadTrial, run_trials
from django_lockstep.lab.simulator.worker_process import WorkerConnection
from tests.support.sessions import query

pytestmark = pytest.mark.django_db(transaction=True)

SAFE = tuple(name for name in NAMES if STRATEGIES[name].safe)


def run_config(*names: str, keep: bool = False, mixed: bool = False) -> RunConfig:
    return RunConfig(strategies=names or NAMES, model=Account, using="default", keep=keep, mixed=mixed)


def load(
    *names: str,
    workers: int = 4,
    accounts: int = 1,
    operations: int = 120,
    rounds: int = 1,
    keep: bool = False,
    mixed: bool = False,
) -> LoadReport:
    workload = Workload(accounts=accounts, mix=Mix.default(accounts=accounts), seed=11)
    plan = LoadPlan(workers=workers, duration=None, operations=operations, rounds=rounds)
    with StopSignal() as interrupt:
        return run_load(
            run_config(*names, keep=keep, mixed=mixed), plan=plan, workload=workload, interrupt=interrupt, terminal=None
        )


def assert_nothing_is_left() -> None:
    assert not Account.objects.exists()
    assert not Entry.objects.exists()
    assert not get_user_model().objects.exists()


def test_on_a_hot_account_the_unprotected_lose_and_the_others_do_not() -> None:
    report = load()
    assert [row.strategy for row in report.rows] == list(NAMES)
    statuses = {row.strategy: row.status for row in report.rows}
    assert statuses == {**dict.fromkeys(SAFE, "correct"), "naive": "lost", "naive_atomic": "lost"}
    assert not any(row.breaks_promise for row in report.rows)
    assert_nothing_is_left()


def test_of_mixtures_those_with_advisory_lose() -> None:
    # Whether an update is lost is chance: optimistic writers give way so often that some rounds lose none.
    report = load("pessimistic", "optimistic", "advisory", mixed=True, operations=600, rounds=5)
    status = {row.strategy: (row.status, row.safe) for row in report.rows}
    assert status == {
        "pessimistic+optimistic": ("correct", True),
        "pessimistic+advisory": ("lost", False),
        "optimistic+advisory": ("lost", False),
    }
    assert report.planned == tuple(status)
    never, why, may = report.advice
    assert never.endswith("they overwrite each other's changes: pessimistic+advisory and optimistic+advisory.")
    assert (
        why == "advisory protects only against writers that use it too: use it for all writers of an account, or none."
    )
    assert may == "These may write the same account: pessimistic+optimistic."
    assert_nothing_is_left()


def test_rounds_take_turns_and_another_one_begins_each(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []
    plain = LoadTrial.run

    def noted(trial: LoadTrial, round_number: int, **options: Any) -> None:
        seen.append((trial.label, round_number))
        plain(trial, round_number, **options)

    monkeypatch.setattr(LoadTrial, "run", noted)
    first, second = load("advisory", "pessimistic", operations=40, rounds=2).rows
    assert seen == [("advisory", 0), ("pessimistic", 0), ("pessimistic", 1), ("advisory", 1)]
    assert (first.strategy, first.tally.operations, first.status) == ("advisory", 40, "correct")
    assert (second.strategy, second.tally.operations, second.status) == ("pessimistic", 40, "correct")


def test_more_workers_than_the_server_has_room_for_are_refused() -> None:
    with pytest.raises(SimulationError, match=r"100000 workers need a connection each, but .* has \d+ left"):
        load("pessimistic", workers=100_000, operations=100_000)
    assert_nothing_is_left()


def test_figures_are_of_all_operations() -> None:
    (row,) = load("optimistic").rows
    assert row.tally.operations == 120
    assert row.verdict.entries == row.tally.succeeded == 120 - row.tally.refused
    assert row.workers == 4
    assert row.tally.conflicts == row.tally.retries > 0
    assert row.latency_ms["p50"] is not None
    assert row.latency_ms["max"] is not None
    assert row.latency_ms["p50"] <= row.latency_ms["max"]
    assert row.tally.rate == pytest.approx(120 / row.tally.seconds)
    assert row.fairness is not None
    assert 0.25 <= row.fairness <= 1


def test_transfers_between_several_accounts_stay_whole() -> None:
    report = load("pessimistic", "conditional_update", accounts=3)
    assert {row.status for row in report.rows} == {"correct"}
    assert all(row.verdict.entries > row.tally.succeeded for row in report.rows)  # a transfer has two


def test_what_is_kept_is_there() -> None:
    report = load("pessimistic", keep=True)
    (row,) = report.rows
    assert Entry.objects.count() == row.verdict.entries
    assert Account.objects.get().user.get_username() in report.notes[0]


class Race:
    """A race that the test takes part in: ``watch`` is called while the workers work."""

    def __init__(self, strategy: str, *, workers: int = 3) -> None:
        self.strategy = strategy
        self.workers = workers
        self.interrupt: StopSignal
        self.pool: WorkerPool

    def run(self, watch: Callable[[], None], *, duration: float = 60.0) -> LoadRow:
        fixture = Fixture.make(Account, using="default", name=new_name())
        strategy = STRATEGIES[self.strategy].bound(using="default")
        trial = AccountTrial(
            label="it",
            plan=LoadPlan(workers=self.workers, duration=duration),
            strategies=(strategy,),
            fixture=fixture,
            workload=Workload(accounts=1, mix=Mix(), seed=3),
        )
        with StopSignal() as self.interrupt, self._pool() as self.pool:
            (row,) = run_trials([trial], pool=self.pool, progress=lambda name: watch)
        return row

    def _pool(self) -> WorkerPool:
        config = WorkerConnection(alias="default", database=connection.settings_dict["NAME"], session="race-of-a-test")
        return WorkerPool(config, size=self.workers, interrupt=self.interrupt, grace=20.0)

    def stop(self) -> None:
        if not self.interrupt.requested:
            self.interrupt.request(signal.SIGINT)


def test_a_killed_worker_is_reported_and_the_rest_counts() -> None:
    race = Race("pessimistic")
    killed: list[int] = []

    def watch() -> None:
        if race.pool.completed > 200 and not killed:
            killed.append(race.pool.workers[1].process.pid or 0)
            os.kill(killed[0], signal.SIGKILL)
        elif killed and race.pool.workers[1].failure and race.pool.completed > 400:
            race.stop()

    row = race.run(watch)
    assert row.worker_failures == ("worker 2 was killed by SIGKILL",)
    assert row.workers == 2
    assert row.verdict.without_acknowledgements
    assert row.status == "correct"
    assert row.verdict.entries > row.tally.succeeded > 0


def test_a_lost_connection_leaves_the_outcome_in_doubt() -> None:
    race = Race("pessimistic")
    ended: list[int] = []

    def watch() -> None:
        if race.pool.completed > 50 and not ended:
            query(
                "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity "
                "WHERE application_name = 'race-of-a-test-00001' AND datname = current_database()"
            )
            ended.append(race.pool.completed)
        elif ended and race.pool.completed > ended[0] + 100:
            race.stop()

    row = race.run(watch)
    assert row.tally.failed == 1
    assert row.workers == 3
    assert row.verdict.without_acknowledgements
    assert row.status == "correct"


def test_where_nothing_succeeds_nothing_is_proved() -> None:
    query("ALTER TABLE accounts_entry ADD CONSTRAINT nothing_passes CHECK (amount = 0) NOT VALID")
    try:
        (row,) = load("pessimistic", workers=2, operations=4).rows
    finally:
        query("ALTER TABLE accounts_entry DROP CONSTRAINT nothing_passes")
    assert row.status == "untested"
    assert row.breaks_promise
    assert row.tally.errors == {"IntegrityError (23514)": 4}
    assert "nothing_passes" in row.tally.examples["IntegrityError (23514)"]
