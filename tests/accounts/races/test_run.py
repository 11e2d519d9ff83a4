"""Real processes on the real database: who loses money, who does not, and what is told about it."""

import os
import signal
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from accounts.models import Account, Entry
from accounts.races.ground import Ground
from accounts.races.load import LoadContender
from accounts.races.mix import Mix
from accounts.races.remains import new_name
from accounts.races.run import NAMES, Field, Scene, run_load, run_story
from accounts.races.stories import STORIES
from accounts.strategies import STRATEGIES
from django_lockstep.lab.simulator.crew import Crew
from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.interrupt import Interrupt
from django_lockstep.lab.simulator.plan import Plan
from django_lockstep.lab.simulator.race import Course, race
from django_lockstep.lab.simulator.report import LoadReport, Row
from django_lockstep.lab.simulator.rounds import StoryReport, tell
from django_lockstep.lab.simulator.worker import Post

pytestmark = pytest.mark.django_db(transaction=True)

SAFE = tuple(name for name in NAMES if STRATEGIES[name].safe)


def scene(*names: str, keep: bool = False, mixed: bool = False) -> Scene:
    return Scene(strategies=names or NAMES, model=Account, using="default", keep=keep, mixed=mixed)


def load(
    *names: str,
    workers: int = 4,
    accounts: int = 1,
    operations: int = 120,
    laps: int = 1,
    keep: bool = False,
    mixed: bool = False,
) -> LoadReport:
    field = Field(accounts=accounts, mix=Mix.default(accounts=accounts), seed=11)
    plan = Plan(workers=workers, duration=None, operations=operations, laps=laps)
    with Interrupt() as interrupt:
        return run_load(
            scene(*names, keep=keep, mixed=mixed), plan=plan, field=field, interrupt=interrupt, terminal=None
        )


def story(name: str, *names: str, rounds: int = 40) -> StoryReport:
    with Interrupt() as interrupt:
        return run_story(scene(*names), story=STORIES[name], rounds=rounds, interrupt=interrupt, terminal=None)


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
    report = load("pessimistic", "optimistic", "advisory", mixed=True)
    status = {row.strategy: (row.status, row.safe) for row in report.rows}
    assert status == {
        "pessimistic+optimistic": ("correct", True),
        "pessimistic+advisory": ("lost", False),
        "optimistic+advisory": ("lost", False),
    }
    assert report.planned == tuple(status)
    never, why, may = report.advice
    assert never.endswith("they overwrite each other's changes: pessimistic+advisory and optimistic+advisory.")
    assert why == "advisory meets only those who use it too: all writers of an account, or none."
    assert may == "These may write the same account: pessimistic+optimistic."
    assert_nothing_is_left()


def test_laps_take_turns_and_another_one_begins_each(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []
    plain = Course.run

    def noted(course: Course, lap: int, **facts: Any) -> None:
        seen.append((course.label, lap))
        plain(course, lap, **facts)

    monkeypatch.setattr(Course, "run", noted)
    first, second = load("advisory", "pessimistic", operations=40, laps=2).rows
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
        self.interrupt: Interrupt
        self.crew: Crew

    def run(self, watch: Callable[[], None], *, duration: float = 60.0) -> Row:
        ground = Ground.make(Account, using="default", name=new_name())
        strategy = STRATEGIES[self.strategy].bound(using="default")
        contender = LoadContender(strategy=strategy, ground=ground, accounts=1, mix=Mix(), seed=3)
        with Interrupt() as self.interrupt, self._crew() as self.crew:
            course = Course(contender=contender, plan=Plan(workers=self.workers, duration=duration), label="it")
            ((_, row),) = race([course], crew=self.crew, alias="default", watch=lambda name: watch)
        return row

    def _crew(self) -> Crew:
        post = Post(alias="default", database=connection.settings_dict["NAME"], session="race-of-a-test")
        return Crew(post, workers=self.workers, interrupt=self.interrupt, grace=20.0)

    def stop(self) -> None:
        if not self.interrupt.requested:
            self.interrupt.request(signal.SIGINT)


def test_ctrl_c_keeps_what_was_measured() -> None:
    race = Race("pessimistic")

    def watch() -> None:
        if race.crew.beats > 50:
            race.stop()

    row = race.run(watch)
    assert row.cut_short
    assert row.status == "correct"
    assert row.succeeded == row.verdict.entries > 40
    assert row.casualties == ()


def test_a_killed_worker_is_reported_and_the_rest_counts() -> None:
    race = Race("pessimistic")
    killed: list[int] = []

    def watch() -> None:
        if race.crew.beats > 200 and not killed:
            killed.append(race.crew.members[1].process.pid or 0)
            os.kill(killed[0], signal.SIGKILL)
        elif killed and race.crew.members[1].casualty and race.crew.beats > 400:
            race.stop()

    row = race.run(watch)
    assert row.casualties == ("worker 2 was killed by SIGKILL",)
    assert row.workers == 2
    assert row.verdict.from_ledger_alone
    assert row.status == "correct"
    assert row.verdict.entries > row.succeeded > 0


def test_a_lost_connection_leaves_the_outcome_in_doubt() -> None:
    race = Race("pessimistic")
    ended: list[int] = []

    def watch() -> None:
        if race.crew.beats > 50 and not ended:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity "
                    "WHERE application_name = 'race-of-a-test-00001' AND datname = current_database()"
                )
                ended.append(race.crew.beats)
        elif ended and race.crew.beats > ended[0] + 100:
            race.stop()

    row = race.run(watch)
    assert row.failed == 1
    assert row.workers == 3
    assert row.verdict.from_ledger_alone
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
        assert [(end.observed, end.rounds) for end in rows[name].endings] == [("120.00", 40)]
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


def test_a_story_ends_with_its_actor() -> None:
    ground = Ground.make(Account, using="default", name=new_name())
    cast = STORIES["lost-update"].cast(STRATEGIES["pessimistic"].bound(using="default"), ground=ground)
    post = Post(alias="default", database=connection.settings_dict["NAME"], session="story-of-a-test")
    with Interrupt() as interrupt, Crew(post, workers=2, interrupt=interrupt, grace=20.0) as crew:

        def kill() -> None:
            if crew.beats > 10 and not crew.members[0].casualty:
                os.kill(crew.members[0].process.pid or 0, signal.SIGKILL)

        (row,) = tell([cast], rounds=1000, crew=crew, alias="default", watch=lambda name: kill)
    assert row.casualties == ("worker 1 was killed by SIGKILL",)
    assert 0 < row.rounds < 1000
    assert row.status == "correct"
    assert sum(end.rounds for end in row.endings) == row.rounds


def test_an_interrupted_story_tells_the_rounds_it_had() -> None:
    ground = Ground.make(Account, using="default", name=new_name())
    cast = STORIES["overdraft"].cast(STRATEGIES["pessimistic"].bound(using="default"), ground=ground)
    post = Post(alias="default", database=connection.settings_dict["NAME"], session="story-of-a-test")
    with Interrupt() as interrupt, Crew(post, workers=2, interrupt=interrupt, grace=20.0) as crew:

        def stop() -> None:
            if crew.beats > 10 and not interrupt.requested:
                interrupt.request(signal.SIGINT)

        (row,) = tell([cast], rounds=1000, crew=crew, alias="default", watch=lambda name: stop)
    assert row.cut_short
    assert row.casualties == ()
    assert 0 < row.rounds < 1000


@pytest.mark.parametrize("name", list(STORIES))
def test_stories_begin_as_they_are_told(name: str) -> None:
    ground = Ground.make(Account, using="default", name=new_name())
    scenario = STORIES[name].scenario(STRATEGIES["pessimistic"], ground=ground)
    pk = scenario.set_up()
    assert scenario.observe is not None
    assert scenario.invariant is not None
    assert scenario.observe(pk) == Decimal(100)
    assert not scenario.invariant(pk)
    for actor in scenario.actors.values():
        try:
            actor(pk)
        except STORIES[name].cast(STRATEGIES["pessimistic"], ground=ground).refusals:
            assert name == "overdraft"
    assert scenario.invariant(pk)
