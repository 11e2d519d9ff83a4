"""Worker processes on two machines of a cluster: together, replaced, and gone afterwards."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT

import pytest
from django.db import connection

from django_lockstep.lab.cluster import executor
from django_lockstep.lab.simulator import cluster_agent, cluster_pool
from django_lockstep.lab.simulator.cluster_pool import ClusterPool
from django_lockstep.lab.simulator.database import clock_offset
from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.interrupt import Interrupt
from django_lockstep.lab.simulator.pool import WorkerPool
from django_lockstep.lab.simulator.worker_process import WorkerConfig
from tests.django_lockstep.lab import tasks
from tests.support.cluster import Cluster
from tests.support.sessions import PATIENCE, query, until

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def pool_on(cluster: Cluster, size: int = 3) -> Iterator[ClusterPool]:
    config = WorkerConfig(alias="default", database=connection.settings_dict["NAME"], session="pool-of-a-test")
    with Interrupt() as interrupt, ClusterPool(cluster.address, config, size=size, interrupt=interrupt) as pool:
        yield pool


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    yield
    until(lambda: sessions() == 0, "the workers' sessions to end", patience=PATIENCE)


def sessions() -> int:
    return int(query("SELECT count(*) FROM pg_stat_activity WHERE starts_with(application_name, 'pool-of-a-test')"))


def test_they_are_shared_out_and_have_sessions_in_this_database(cluster: Cluster) -> None:
    with pool_on(cluster, 3) as three:
        result = three.run([tasks.backend] * 3)
        places = three.places
    database = connection.settings_dict["NAME"]
    names = [f"pool-of-a-test-{name}" for name in ("00-00001", "01-00001", "00-00002")]
    assert result.results == tuple((database, name) for name in names)
    assert result.worker_failures == ()
    assert [part.partition(" on tcp://")[0] for part in places.split(", ")] == ["2", "1"]


def test_one_worker_needs_one_machine(cluster: Cluster) -> None:
    with pool_on(cluster, 1) as one:
        assert len(one.run([tasks.draw]).results) == 1


def test_no_worker_starts_before_all_have_arrived(cluster: Cluster) -> None:
    with pool_on(cluster, 4) as four:
        for _ in range(2):
            came, left = zip(*four.run([tasks.start] * 4).results, strict=True)
            assert max(came) < min(left)


def test_times_are_those_of_the_databases_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = 3600 * 10**9
    monkeypatch.setattr(cluster_agent, "clock_offset", lambda alias: ahead)
    config = WorkerConfig(alias="default", database=connection.settings_dict["NAME"], session="pool-of-a-test")
    with Interrupt() as interrupt, WorkerPool(config, size=2, interrupt=interrupt) as pool:
        agent = cluster_agent.Agent(pool, alias="default")
        agent.begin([tasks.measure] * 2)
        until(lambda: agent.look().at_barrier, "the barrier", patience=PATIENCE)
        start = time.perf_counter_ns() + ahead
        agent.look(start=start)
        until(lambda: agent.look().result is not None, "the end", patience=PATIENCE)
        results = agent.look().result
    assert results is not None
    assert all(start <= tally.started <= tally.ended < start + ahead for tally in results.results)


def test_the_databases_clock_is_known_to_a_fraction_of_a_round_trip() -> None:
    before = int(query("SELECT extract(epoch FROM clock_timestamp()) * 10^9"))
    between = time.perf_counter_ns() + clock_offset("default")
    after = int(query("SELECT extract(epoch FROM clock_timestamp()) * 10^9"))
    assert before < between < after


def test_a_dead_worker_is_reported_and_replaced(cluster: Cluster) -> None:
    with pool_on(cluster, 3) as three:
        # The second one of its machine, which is the third of the pool.
        result = three.run([tasks.Die(number=1)] * 3)
        assert result.results == ("alive", "alive", None)
        assert [str(failure) for failure in result.worker_failures] == ["worker 3 was killed by SIGKILL"]
        again = three.run([tasks.Die(number=7)] * 3)
    assert (again.results, again.worker_failures) == (("alive",) * 3, ())


def test_what_is_interrupted_ends_early(cluster: Cluster) -> None:
    with pool_on(cluster, 2) as two:

        def interrupt_when_both_work() -> None:
            if two.completed and not two.interrupt.requested:
                two.interrupt.request(SIGINT)

        result = two.run([tasks.work_until_stopped] * 2, on_tick=interrupt_when_both_work)
    assert result.results == ("stopped", "stopped")


def test_a_machine_that_is_lost_is_reported_and_replaced(empty_cluster: Cluster, tmp_path: Path) -> None:
    for _ in range(3):
        empty_cluster.start_worker()
    task = tasks.WorkUntil(file=str(tmp_path / "over"))

    def lose_one() -> None:
        killed = any(worker.poll() is not None for worker in empty_cluster.workers)
        if two.completed and not killed:
            empty_cluster.worker_at(first.partition(" on ")[2]).kill()
        if any(machine.lost for machine in two._machines):
            Path(task.file).touch()

    with pool_on(empty_cluster, 2) as two:
        first, second = two.places.split(", ")
        result = two.run([task] * 2, on_tick=lose_one)
        assert result.results == (None, "over")
        (failure,) = result.worker_failures
        assert (failure.worker, failure.session) == (0, "pool-of-a-test-00")
        assert f"worker 1 was {first.removeprefix('1 ')}, which was lost: " in str(failure)
        # The third machine, which had nothing to do.
        assert two.run([tasks.backend] * 2).worker_failures == ()
        assert first not in two.places
        assert second in two.places


def test_other_databases_are_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = cluster_agent.describe("default")
    monkeypatch.setattr(cluster_pool, "describe", lambda alias: {**ours, "the database": "bank of another server"})
    with (
        pytest.raises(SimulationError, match="the database is 'test_.*' here, and 'bank of another server' where"),
        pool_on(cluster),
    ):
        pass


def test_without_a_worker_there_is_no_pool(empty_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_PATIENCE", 1)
    with pytest.raises(SimulationError, match="has had no worker for 1 s"), pool_on(empty_cluster):
        pass
