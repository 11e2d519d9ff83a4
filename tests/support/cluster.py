"""A Dask cluster on this machine, as a plugin of pytest."""

import gc
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sessions import PATIENCE, until

FILE = "LOCKSTEP_TEST_CLUSTER_FILE"
"""What names `Cluster.file` in the environment of its workers."""
_PORT = re.compile(r"Scheduler at: +tcp://127\.0\.0\.1:(\d+)")
"""Clients of a scheduler that was there before connect as soon as it is there again, and are in its log, too."""


class Cluster:
    """A scheduler and workers, each a process group of its own on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.file = folder / "in-a-worker"
        self.workers: list[subprocess.Popen[bytes]] = []
        self.address = self.start_scheduler("0")

    def start_scheduler(self, port: str) -> str:
        log = self._folder / "scheduler.log"
        self.scheduler = self._start("scheduler", log, "--port", port)
        until(lambda: _PORT.search(log.read_text()) is not None, "the scheduler", patience=5 * PATIENCE)
        return f"tcp://127.0.0.1:{_PORT.findall(log.read_text())[0]}"

    def start_worker(self, **environment: str) -> None:
        log = self._folder / f"worker{len(self.workers)}.log"
        options = [self.address, "--nthreads", "1", "--no-nanny", "--local-directory", str(self._folder)]
        self.workers.append(self._start("worker", log, *options, **environment))
        # On a busy machine its imports take longer than an exploration waits for the first worker.
        until(lambda: "Registered to" in log.read_text(), "a worker to be registered", patience=5 * PATIENCE)

    def require_worker(self) -> None:
        """Start one unless there is one that lives."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        if not self.workers:
            self.start_worker()

    def _start(self, program: str, log: Path, *options: str, **environment: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-W", "ignore", "-m", f"distributed.cli.dask_{program}", *options]
        local = ["--host", "127.0.0.1", "--no-dashboard"]
        env = {**os.environ, FILE: str(self.file), "DJANGO_SETTINGS_MODULE": "tests.settings", **environment}
        with log.open("wb") as output:
            return subprocess.Popen([*command, *local], env=env, stdout=output, stderr=output, start_new_session=True)

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture
def dasks_leftovers() -> Iterator[None]:
    """Have the garbage collector close what a client of Dask has left open, so that no later test is blamed for it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def empty_cluster(tmp_path: Path, dasks_leftovers: None) -> Iterator[Cluster]:
    """A cluster without workers."""
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for all tests of a module, without workers as long as none has started one."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(shared_cluster: Cluster, dasks_leftovers: None) -> Cluster:
    """The one of the module, with a worker."""
    shared_cluster.require_worker()
    return shared_cluster
