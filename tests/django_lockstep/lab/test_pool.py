"""Worker processes: together, replaced, and gone afterwards."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.interrupt import StopSignal
from django_lockstep.lab.simulator.pool import WorkerPool
from django_lockstep.lab.simulator.worker_process import WorkerConnection
from tests.django_lockstep.lab import tasks
from tests.support.sessions import query

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def worker_pool(
    size: int = 2, *, database: str = "", stuck_after: float = 60.0, grace: float = 20.0
) -> Iterator[WorkerPool]:
    name = database or connection.settings_dict["NAME"]
    config = WorkerConnection(alias="default", database=name, session="pool-of-a-test")
    with StopSignal() as interrupt, WorkerPool(config, size=size, interrupt=interrupt, grace=grace) as pool:
        pool.stuck_after = stuck_after
        yield pool


def sessions() -> int:
    ours = "application_name LIKE 'pool-of-a-test%%' AND datname = current_database()"
    return int(query(f"SELECT count(*) FROM pg_stat_activity WHERE {ours}"))


def pids_of(pool: WorkerPool) -> list[int]:
    return [worker.process.pid or 0 for worker in pool.workers]


def assert_gone(pids: list[int]) -> None:
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_each_has_a_session_of_its_own_in_this_database() -> None:
    with worker_pool(3) as three:
        result = three.run([tasks.backend] * 3)
        assert sessions() == 3
        pids = pids_of(three)
    assert result.results == tuple((connection.settings_dict["NAME"], f"pool-of-a-test-0000{n}") for n in (1, 2, 3))
    assert result.worker_failures == ()
    assert_gone(pids)


def test_workers_share_no_random_numbers() -> None:
    with worker_pool(3) as three:
        drawn = three.run([tasks.draw] * 3).results
    assert len(set(drawn)) == 3


def test_no_worker_starts_before_all_have_arrived() -> None:
    with worker_pool(4) as four:
        came, left = zip(*four.run([tasks.start] * 4).results, strict=True)
    assert max(came) < min(left)


def test_a_dead_worker_is_reported_and_replaced() -> None:
    with worker_pool() as two:
        result = two.run([tasks.Die(number=1)] * 2)
        assert result.results == ("alive", None)
        assert [str(failure) for failure in result.worker_failures] == ["worker 2 was killed by SIGKILL"]
        again = two.run([tasks.Die(number=7)] * 2)
    assert again.results == ("alive", "alive")
    assert again.worker_failures == ()


def test_the_barrier_does_not_wait_for_dead_workers() -> None:
    with worker_pool() as two:
        result = two.run([tasks.Die(number=0, before=True)] * 2)
    assert result.results == (None, "alive")


def test_an_error_in_a_task_is_reported() -> None:
    with worker_pool() as two:
        result = two.run([tasks.fail, tasks.start])
    assert [str(failure) for failure in result.worker_failures] == ["worker 1 failed: RuntimeError: no luck"]


def test_a_silent_worker_counts_as_stuck() -> None:
    with worker_pool(stuck_after=3.0) as two:
        result = two.run([tasks.hang, tasks.start])
    assert [str(failure) for failure in result.worker_failures] == [
        "worker 1 was stuck: nothing finished for 3 s, so it was killed"
    ]


def test_a_stopped_process_is_stuck_too() -> None:
    with worker_pool(stuck_after=3.0) as two:
        os.kill(two.workers[0].process.pid or 0, signal.SIGSTOP)
        result = two.run([tasks.start] * 2)
    assert [failure.worker for failure in result.worker_failures] == [0]


def test_an_interrupt_stops_work_and_starts_none() -> None:
    with worker_pool() as two:

        def interrupt() -> None:
            if two.completed and not two.interrupt.requested:
                two.interrupt.request(signal.SIGTERM)

        result = two.run([tasks.work_until_stopped] * 2, on_tick=interrupt)
        assert result.results == ("stopped", "stopped")
        assert two.run([tasks.start] * 2).results == (None, None)
        assert two.interrupt.name == "SIGTERM"


def test_who_does_not_stop_in_time_is_killed() -> None:
    with worker_pool(grace=2.0) as two:

        def interrupt() -> None:
            if two.completed and not two.interrupt.requested:
                two.interrupt.request(signal.SIGINT)

        result = two.run([tasks.hang, tasks.work_until_stopped], on_tick=interrupt)
    assert result.results == (None, "stopped")
    assert [str(failure) for failure in result.worker_failures] == ["worker 1 did not stop in time, so it was killed"]


def test_an_error_of_the_parent_leaves_no_worker() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), worker_pool() as two:
        pids = pids_of(two)
        two.run([tasks.work_until_stopped] * 2, on_tick=fail)
    assert two.workers == []
    assert_gone(pids)


def test_a_database_that_is_not_there_is_said() -> None:
    with (
        pytest.raises(SimulationError, match=r"Only 0 of 2 workers could start: worker 1 failed: OperationalError"),
        worker_pool(database="test_nowhere"),
    ):
        raise AssertionError("the pool must not start")


# Signals


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_is_noted(name: str) -> None:
    with StopSignal() as interrupt:
        assert not interrupt.requested
        os.kill(os.getpid(), getattr(signal, name))
        assert interrupt.name == name


def test_the_second_signal_does_not_wait() -> None:
    with StopSignal() as interrupt:
        interrupt.request(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupt.request(signal.SIGINT)


def test_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignal():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_in_another_thread_it_can_be_asked() -> None:
    seen = []

    def ask() -> None:
        with StopSignal() as interrupt:
            interrupt.request(signal.SIGTERM)
            seen.append(interrupt.name)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert seen == ["SIGTERM"]
