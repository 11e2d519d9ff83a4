"""One race explored on a Dask cluster: the same result as by one process, and nothing left behind."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from django_lockstep.lab.explorer import Exploration, NotExplorable, Scenario
from django_lockstep.lab.explorer.tables.databases import SCRATCH_PREFIX
from django_lockstep.lab.workers import cluster as executor
from tests.django_lockstep.lab.explorer import stories
from tests.django_lockstep.lab.explorer.test_processes import explored, facts, raised_twice
from tests.support.cluster import FILE, Cluster
from tests.support.sessions import PATIENCE, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_tests", "workers_at_once")]


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    yield
    until(lambda: copies() == [], "the workers' databases to be dropped", patience=PATIENCE)


def copies() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", [f"{SCRATCH_PREFIX}%_run_%"])
        return [name for (name,) in cursor.fetchall()]


def the_file() -> Path | None:
    """Return the file that tells tests and actors apart from those in workers."""
    return Path(os.environ[FILE]) if FILE in os.environ else None


def dies_once(pk: int) -> None:
    if (file := the_file()) is not None and file.exists():
        file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    stories.naive(pk)


def waits_while_the_file_is_there(pk: int) -> None:
    stories.naive(pk)
    if (file := the_file()) is not None and file.exists():
        file.with_suffix(".waits").touch()
        until(lambda: not file.exists(), "the file to be removed")


def on(cluster: Cluster, scenario: Scenario, **options: Any) -> Exploration:
    return explored(scenario, cluster=cluster.address, **options)


NAIVE = Scenario(set_up=stories.one_seat, actors=[stories.naive] * 2, invariant=raised_twice)
DYING = Scenario(set_up=stories.one_seat, actors=[dies_once] * 2, invariant=raised_twice)
WAITING = Scenario(set_up=stories.one_seat, actors=[waits_while_the_file_is_there] * 2, invariant=raised_twice)


def test_the_command_explores_there(cluster: Cluster) -> None:
    out = StringIO()
    call_command("explore", "queue:skip-locked", "--cluster", cluster.address, stdout=out)
    assert out.getvalue().startswith("queue:skip-locked: holds")


def test_a_process_that_dies_is_replaced_and_its_schedule_is_run(cluster: Cluster) -> None:
    expected = facts(explored(DYING))
    cluster.file.touch()
    assert facts(on(cluster, DYING)) == expected
    assert not cluster.file.exists()


# Whole workers, and the scheduler


def kill_the_worker(cluster: Cluster) -> None:
    cluster.workers[0].kill()
    cluster.workers.pop().wait()
    cluster.start_worker()


def restart_the_scheduler(cluster: Cluster) -> None:
    cluster.scheduler.kill()
    cluster.scheduler.wait()
    cluster.start_scheduler(cluster.address.rpartition(":")[2])
    cluster.start_worker()


@pytest.mark.parametrize("trouble", [kill_the_worker, restart_the_scheduler])
def test_the_search_goes_on(cluster: Cluster, trouble: Callable[[Cluster], None]) -> None:
    expected = facts(explored(WAITING))
    waits = waiting_in(cluster)

    def interfere() -> None:
        until(waits.exists, "a worker to be in a schedule", patience=5 * PATIENCE)
        trouble(cluster)
        cluster.file.unlink()

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(interfere)
        result = facts(on(cluster, WAITING, step_timeout=60.0, warm_up=False))
        done.result()
    assert result == expected


def waiting_in(cluster: Cluster) -> Path:
    """Let the next schedule in a worker wait; return the file that tells that it does."""
    waits = cluster.file.with_suffix(".waits")
    waits.unlink(missing_ok=True)
    cluster.file.touch()
    return waits


def test_a_cluster_without_workers_or_with_other_code_or_that_does_not_answer_is_refused(
    empty_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_PATIENCE", 1)
    with pytest.raises(NotExplorable, match="has had no worker for 1 s"):
        on(empty_cluster, NAIVE)
    empty_cluster.start_worker(DJANGO_SETTINGS_MODULE="bank.settings")
    with pytest.raises(NotExplorable, match="cannot do this work: the code of the app press is 'missing' here"):
        on(empty_cluster, NAIVE)
    empty_cluster.scheduler.kill()
    with pytest.raises(NotExplorable, match="No scheduler of Dask answers at 'tcp://127"):
        on(empty_cluster, NAIVE)
    assert "IO loop" not in [thread.name for thread in threading.enumerate()]


# Ctrl-C

PROGRAM = """
import django
django.setup()
from tests.django_lockstep.lab.explorer.test_cluster import *
from django_lockstep.lab.explorer import processes
processes._ALONE = 0.0
explored(WAITING, cluster={address!r}, step_timeout=60.0, warm_up=False)
"""


def test_ctrl_c_ends_the_processes_of_the_workers(cluster: Cluster) -> None:
    waits = waiting_in(cluster)
    command = [sys.executable, "-c", PROGRAM.format(address=cluster.address)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    try:
        until(waits.exists, "a worker to be in a schedule", patience=5 * PATIENCE)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=5 * PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert b"KeyboardInterrupt" in said
    until(lambda: copies() == [], "the databases to be dropped while the worker lives", patience=PATIENCE)
    assert cluster.workers[-1].poll() is None
    cluster.file.unlink()
