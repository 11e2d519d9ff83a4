"""Real runs: who is right shows as right, and who is wrong as wrong."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from benchmarks.contest import Cell
from benchmarks.deposit import SUITE, YARDSTICK, others, ours, raw
from benchmarks.deposit.contender import WorkerContender
from benchmarks.deposit.pgbench import SCRIPTS, Pgbench, PgbenchError, processed, tallies
from benchmarks.deposit.rows import check, reset_accounts
from benchmarks.suite import Options
from benchmarks.workers import WorkersError, worker_pool
from django_lockstep.lab.simulator.pool import WorkerPool

pytestmark = pytest.mark.django_db(transaction=True)

HOT = Cell(rows=1, workers=2)
SPREAD = Cell(rows=10, workers=2)


@pytest.fixture(scope="module")
def pool(django_db_setup: None) -> Iterator[WorkerPool]:
    """Three workers: one more than the cells need."""
    with worker_pool(3) as members:
        yield members


def contender(pool: WorkerPool, module: ModuleType, name: str) -> WorkerContender:
    return WorkerContender(method=module.METHODS[name], module=module.__name__, pool=pool)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_pgbench_deposits_right(script: Pgbench) -> None:
    sample = script.run(HOT, seconds=1)
    assert sample.verdict == "correct"
    assert sample.operations > 0
    assert None not in (sample.p50_ms, sample.p99_ms, sample.fairness, sample.client_us)


def test_python_contenders_deposit_right(pool: WorkerPool) -> None:
    safe = [
        *((raw, name) for name in raw.METHODS),
        *((others, name) for name in others.METHODS),
        *((ours, name) for name in ours.METHODS if name.startswith("account:")),
    ]
    verdicts = {name: contender(pool, module, name).run(SPREAD, seconds=1).verdict for module, name in safe}
    assert verdicts == dict.fromkeys(verdicts, "correct")


def test_naive_shows_as_wrong(pool: WorkerPool) -> None:
    assert contender(pool, ours, "strategy:naive").run(HOT, seconds=2).verdict.startswith("WRONG")


def test_retries_and_cpu_are_counted(pool: WorkerPool) -> None:
    sample = contender(pool, others, "django-concurrency:backoff").run(HOT, seconds=1)
    assert sample.retries is not None
    assert sample.retries > 0
    assert sample.client_us is not None
    assert sample.client_us > 0


def test_operations_that_fail_are_no_result(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.deposit.contender.reset_accounts", lambda rows: reset_accounts(rows - 1))
    with pytest.raises(WorkersError, match="DoesNotExist"):
        contender(pool, ours, "account:deposit").run(SPREAD, seconds=1)


def test_a_worker_without_a_row_of_its_own_is_an_obstacle(pool: WorkerPool) -> None:
    method = contender(pool, ours, "account:try_deposit-in-hand")
    assert method.obstacle(HOT) == "each worker needs a row of its own"
    assert method.obstacle(SPREAD) is None


# The check.


@pytest.mark.parametrize(
    ("reported", "verdict"), [(0, "NOTHING DONE"), (3, "WRONG: 3 of 3 deposits not in the balance")]
)
def test_what_is_reported_has_to_be_there(reported: int, verdict: str) -> None:
    reset_accounts(2)
    assert check(rows=2, reported=reported, with_entries=True).verdict == verdict


def test_a_deposit_without_entry_is_wrong(pool: WorkerPool) -> None:
    sample = contender(pool, raw, "psycopg:update").run(HOT, seconds=1)
    assert sample.verdict == "correct"
    assert check(rows=1, reported=sample.operations, with_entries=True).verdict.startswith("WRONG: 0 entries")


# The whole.


def test_the_suite_races_who_is_asked_for_and_the_yardstick() -> None:
    options = Options(rows=(10,), workers=(1,), rounds=1, seconds=1, only=("account:deposit",))
    lines: list[str] = []
    section = SUITE.run(options, say=lines.append)
    (cell,) = section.data["cells"]
    assert set(cell["contenders"]) == {YARDSTICK, "account:deposit"}
    assert section.sound
    assert cell["contenders"][YARDSTICK]["ratio"] == 1.0
    assert cell["contenders"]["account:deposit"]["ratio"] > 0


# What pgbench prints and logs is understood


LOG = """\
0 1 500 0 1700000000 000500
1 1 200 0 1700000000 000900
0 2 400 0 1700000000 001000
"""


def test_an_output_that_does_not_say_how_much_was_done_is_shown() -> None:
    with pytest.raises(PgbenchError, match="no such thing"):
        processed("no such thing")


def test_the_log_is_a_tally_for_each_client() -> None:
    first, second = tallies(LOG.splitlines())
    assert (first.succeeded, second.succeeded) == (2, 1)
    assert (first.ended - first.started, second.ended - second.started) == (1_000_000, 200_000)
    assert first.latencies.largest == 500_000
    # A client begins when its first transaction does.
    assert second.started - first.started == 700_000
