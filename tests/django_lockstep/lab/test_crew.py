"""Worker processes: together, replaced, and gone afterwards."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from django_lockstep.lab.simulator.crew import Crew
from django_lockstep.lab.simulator.errors import SimulationError
from django_lockstep.lab.simulator.interrupt import Interrupt
from django_lockstep.lab.simulator.worker import Post
from tests.django_lockstep.lab import tasks
from tests.support.sessions import query

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def crew(workers: int = 2, *, database: str = "", patience: float = 60.0, grace: float = 20.0) -> Iterator[Crew]:
    name = database or connection.settings_dict["NAME"]
    post = Post(alias="default", database=name, session="crew-of-a-test")
    with Interrupt() as interrupt, Crew(post, workers=workers, interrupt=interrupt, grace=grace) as made:
        made.patience = patience
        yield made


def sessions() -> int:
    ours = "application_name LIKE 'crew-of-a-test%%' AND datname = current_database()"
    return int(query(f"SELECT count(*) FROM pg_stat_activity WHERE {ours}"))


def pids_of(crew: Crew) -> list[int]:
    return [member.process.pid or 0 for member in crew.members]


def assert_gone(pids: list[int]) -> None:
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_each_has_a_session_of_its_own_in_this_database() -> None:
    with crew(3) as three:
        finish = three.race([tasks.backend] * 3)
        assert sessions() == 3
        pids = pids_of(three)
    assert finish.results == tuple((connection.settings_dict["NAME"], f"crew-of-a-test-0000{n}") for n in (1, 2, 3))
    assert finish.casualties == ()
    assert_gone(pids)


def test_workers_share_no_random_numbers() -> None:
    with crew(3) as three:
        drawn = three.race([tasks.draw] * 3).results
    assert len(set(drawn)) == 3


def test_nobody_starts_before_all_have_come() -> None:
    with crew(4) as four:
        came, left = zip(*four.race([tasks.start] * 4).results, strict=True)
    assert max(came) < min(left)


def test_a_dead_worker_is_reported_and_replaced() -> None:
    with crew() as two:
        finish = two.race([tasks.Die(number=1)] * 2)
        assert finish.results == ("alive", None)
        assert [str(casualty) for casualty in finish.casualties] == ["worker 2 was killed by SIGKILL"]
        again = two.race([tasks.Die(number=7)] * 2)
    assert again.results == ("alive", "alive")
    assert again.casualties == ()


def test_nobody_waits_at_the_barrier_for_the_dead() -> None:
    with crew() as two:
        finish = two.race([tasks.Die(number=0, before=True)] * 2)
    assert finish.results == (None, "alive")


def test_the_inseparable_end_together() -> None:
    with crew() as two:
        finish = two.race([tasks.Die(number=0), tasks.work_until_told], inseparable=True)
        assert finish.results == (None, "stopped")
        assert two.race([tasks.start] * 2).casualties == ()


def test_an_error_in_a_task_is_told() -> None:
    with crew() as two:
        finish = two.race([tasks.fail, tasks.start])
    assert [str(casualty) for casualty in finish.casualties] == ["worker 1 failed: RuntimeError: no luck"]


def test_a_silent_worker_counts_as_stuck() -> None:
    with crew(patience=3.0) as two:
        finish = two.race([tasks.hang, tasks.start])
    assert [str(casualty) for casualty in finish.casualties] == [
        "worker 1 was stuck: nothing finished for 3 s, so it was killed"
    ]


def test_a_stopped_process_is_stuck_too() -> None:
    with crew(patience=3.0) as two:
        os.kill(two.members[0].process.pid or 0, signal.SIGSTOP)
        finish = two.race([tasks.start] * 2)
    assert [casualty.worker for casualty in finish.casualties] == [0]


def test_an_interrupt_stops_work_and_starts_none() -> None:
    with crew() as two:

        def interrupt() -> None:
            if two.beats and not two.interrupt.requested:
                two.interrupt.request(signal.SIGTERM)

        finish = two.race([tasks.work_until_told] * 2, watch=interrupt)
        assert finish.results == ("stopped", "stopped")
        assert two.race([tasks.start] * 2).results == (None, None)
        assert two.interrupt.name == "SIGTERM"


def test_who_does_not_stop_in_time_is_killed() -> None:
    with crew(grace=2.0) as two:

        def interrupt() -> None:
            if two.beats and not two.interrupt.requested:
                two.interrupt.request(signal.SIGINT)

        finish = two.race([tasks.hang, tasks.work_until_told], watch=interrupt)
    assert finish.results == (None, "stopped")
    assert [str(casualty) for casualty in finish.casualties] == ["worker 1 did not stop in time, so it was killed"]


def test_an_error_of_the_parent_leaves_no_worker() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), crew() as two:
        pids = pids_of(two)
        two.race([tasks.work_until_told] * 2, watch=fail)
    assert two.members == []
    assert_gone(pids)


def test_a_database_that_is_not_there_is_said() -> None:
    with (
        pytest.raises(SimulationError, match=r"Only 0 of 2 workers could start: worker 1 failed: OperationalError"),
        crew(database="test_nowhere"),
    ):
        raise AssertionError("the crew must not begin")
