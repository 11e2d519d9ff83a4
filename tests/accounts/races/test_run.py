"""Real processes on the real database: which strategies lose money, which do not, and what is reported."""

import os
import signal
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from accounts.models import Account, Entry
from accounts.races.fixture import Fixture, new_name
from accounts.races.load import AccountTrial, Mix, Workload
from accounts.races.run import NAMES, RunConfig, run_load, run_story, story_trial
from accounts.races.stories import STORIES
from accounts.strategies import STRATEGIES
from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.interrupt import StopSignal
from django_lockstep.lab.simulator.load_plan import LoadPlan
from django_lockstep.lab.simulator.pool import WorkerPool
from django_lockstep.lab.simulator.report import LoadReport, LoadRow
from django_lockstep.lab.simulator.stories import StoryReport, StoryRow
from django_lockstep.lab.simulator.trials import LoadTrial, run_trials
from django_lockstep.lab.simulator.worker_process import WorkerConnection

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


def story(name: str, *names: str, runs: int = 40) -> StoryReport:
    with StopSignal() as interrupt:
        return run_story(run_config(*names), story=STORIES[name], runs=runs, interrupt=interrupt, terminal=None)


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

    def noted(trial: LoadTrial, round_number: int, **facts: Any) -> None:
        seen.append((trial.label, round_number))
        plain(trial, round_number, **facts)

    monkeypatch.setattr(LoadTrial, "run", noted)
    first, second = load("advisory", "pessimistic", operations=40, rounds=2).rows
    assert seen == [("advisory", 0), ("pessimistic", 0), ("pessimistic", 1), ("advisory", 1)]
    assert (first.strategy, first.operations, first.status) == ("advisory", 40, "correct")
    assert (second.strategy, second.operations, second.status) == ("pessimistic", 40, "correct")


def test_more_workers_than_the_server_has_room_for_are_refused() -> None:
    with pytest.raises(SimulationError, match=r"100000 workers need a connection each, but .* has \d+ left"):
        load("pessimistic", workers=100_000, operations=100_000)
    assert_nothing_is_left()


def test_figures_are_of_all_operations() -> None:
    (row,) = load("optimistic").rows
    assert row.operations == 120
    assert row.verdict.entries == row.succeeded == 120 - row.refused
    assert row.workers == 4
    assert row.conflicts == row.retries > 0
    assert row.latency_ms.p50 is not None
    assert row.latency_ms.max is not None
    assert row.latency_ms.p50 <= row.latency_ms.max
    assert row.operations_per_second == pytest.approx(120 / row.seconds)
    assert row.fairness is not None
    assert 0.25 <= row.fairness <= 1


def test_transfers_between_several_accounts_stay_whole() -> None:
    report = load("pessimistic", "conditional_update", accounts=3)
    assert {row.status for row in report.rows} == {"correct"}
    assert all(row.verdict.entries > row.succeeded for row in report.rows)  # a transfer has two


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


def test_ctrl_c_keeps_what_was_measured() -> None:
    race = Race("pessimistic")

    def watch() -> None:
        if race.pool.completed > 50:
            race.stop()

    row = race.run(watch)
    assert row.cut_short
    assert row.status == "correct"
    assert row.succeeded == row.verdict.entries > 40
    assert row.worker_failures == ()


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
    assert row.verdict.entries > row.succeeded > 0


def test_a_lost_connection_leaves_the_outcome_in_doubt() -> None:
    race = Race("pessimistic")
    ended: list[int] = []

    def watch() -> None:
        if race.pool.completed > 50 and not ended:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity "
                    "WHERE application_name = 'race-of-a-test-00001' AND datname = current_database()"
                )
                ended.append(race.pool.completed)
        elif ended and race.pool.completed > ended[0] + 100:
            race.stop()

    row = race.run(watch)
    assert row.failed == 1
    assert row.workers == 3
    assert row.verdict.without_acknowledgements
    assert row.status == "correct"


def test_where_nothing_succeeds_nothing_is_proved() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE accounts_entry ADD CONSTRAINT nothing_passes CHECK (amount = 0) NOT VALID")
    try:
        (row,) = load("pessimistic", workers=2, operations=4).rows
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE accounts_entry DROP CONSTRAINT nothing_passes")
    assert row.status == "untested"
    assert row.breaks_promise
    assert row.errors == {"IntegrityError (23514)": 4}
    assert "nothing_passes" in row.error_examples["IntegrityError (23514)"]


def test_lost_update_ends_at_120_with_every_safe_strategy() -> None:
    report = story("lost-update")
    rows = {row.strategy: row for row in report.rows}
    for name in SAFE:
        assert [(end.observed, end.runs) for end in rows[name].endings] == [("120.00", 40)]
        assert rows[name].status == "correct"
    for name in ("naive", "naive_atomic"):
        assert rows[name].status == "lost"
        assert {end.observed for end in rows[name].endings if end.broken} <= {"70.00", "150.00"}
    assert_nothing_is_left()


def test_overdraft_lets_exactly_one_pass_with_every_safe_strategy() -> None:
    report = story("overdraft")
    for row in report.rows:
        if row.safe:
            assert row.status == "correct"
            assert all(sorted(end.outcomes.values()) == ["passed", "refused"] for end in row.endings)
            assert {end.observed for end in row.endings} <= {"-300.00", "-200.00"}
        else:
            assert row.status == "overdrawn"
            assert any(set(end.outcomes.values()) == {"passed"} for end in row.endings if end.broken)
    assert_nothing_is_left()


def cut_short(story: str, interfere: Callable[[WorkerPool, StopSignal], None]) -> StoryRow:
    """Run the story a thousand times at most, and interfere after ten runs."""
    fixture = Fixture.make(Account, using="default", name=new_name())
    trial = story_trial(STORIES[story], STRATEGIES["pessimistic"].bound(using="default"), fixture=fixture, runs=1000)
    config = WorkerConnection(alias="default", database=connection.settings_dict["NAME"], session="story-of-a-test")
    with StopSignal() as interrupt, WorkerPool(config, size=2, interrupt=interrupt, grace=20.0) as pool:

        def progress() -> None:
            if pool.completed > 10:
                interfere(pool, interrupt)

        (row,) = run_trials([trial], pool=pool, progress=lambda name: progress)
    assert 0 < row.runs < 1000
    return row


def test_a_story_ends_with_its_actor() -> None:
    def kill(pool: WorkerPool, interrupt: StopSignal) -> None:
        if not pool.workers[0].failure:
            os.kill(pool.workers[0].process.pid or 0, signal.SIGKILL)

    row = cut_short("lost-update", kill)
    assert row.worker_failures == ("worker 1 was killed by SIGKILL",)
    assert row.status == "correct"
    assert sum(end.runs for end in row.endings) == row.runs


def test_an_interrupted_story_reports_the_runs_it_had() -> None:
    def stop(pool: WorkerPool, interrupt: StopSignal) -> None:
        if not interrupt.requested:
            interrupt.request(signal.SIGINT)

    row = cut_short("overdraft", stop)
    assert row.cut_short
    assert row.worker_failures == ()


@pytest.mark.parametrize("name", list(STORIES))
def test_stories_begin_as_their_text_says(name: str) -> None:
    fixture = Fixture.make(Account, using="default", name=new_name())
    trial = story_trial(STORIES[name], STRATEGIES["pessimistic"], fixture=fixture, runs=1)
    scenario = trial.scenario
    pk = scenario.set_up()
    assert scenario.observe is not None
    assert scenario.invariant is not None
    assert scenario.observe(pk) == Decimal(100)
    assert not scenario.invariant(pk)
    for actor in scenario.actors.values():
        try:
            actor(pk)
        except trial.refusals:
            assert name == "overdraft"
    assert scenario.invariant(pk)
