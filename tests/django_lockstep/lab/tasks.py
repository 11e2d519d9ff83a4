"""Tasks for workers in tests; the workers import this module."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from django.db import connection

from django_lockstep.lab.simulator.tally import Tally
from django_lockstep.lab.simulator.worker_process import WorkerChannel


def backend(channel: WorkerChannel) -> tuple[str, str]:
    """Return the database and the application name of the worker's session."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database(), current_setting('application_name')")
        database, name = cursor.fetchone()
    return database, name


def draw(channel: WorkerChannel) -> float:
    """Return a number from the generator that all of a process share, as pauses between retries do."""
    return random.random()


def start(channel: WorkerChannel) -> tuple[int, int]:
    """Return when the worker came to the barrier and when it left."""
    came = time.perf_counter_ns()
    channel.wait_at_barrier()
    return came, time.perf_counter_ns()


def measure(channel: WorkerChannel) -> Tally:
    """Return counts that say when the worker left the barrier."""
    channel.wait_at_barrier()
    return Tally(started=time.perf_counter_ns(), ended=time.perf_counter_ns())


def work_until_stopped(channel: WorkerChannel) -> str:
    """Work until the parent says stop."""
    channel.wait_at_barrier()
    while not channel.stopping:
        channel.count_completed()
    return "stopped"


@dataclass(frozen=True)
class WorkUntil:
    """Work until there is a file of this name."""

    file: str

    def __call__(self, channel: WorkerChannel) -> str:
        channel.wait_at_barrier()
        while not Path(self.file).exists():
            channel.count_completed()
            channel.pause(0.01)
        return "over"


def fail(channel: WorkerChannel) -> None:
    """Fail."""
    raise RuntimeError("no luck")


def hang(channel: WorkerChannel) -> None:
    """Do nothing, and don't look up."""
    channel.wait_at_barrier()
    signal.pause()


@dataclass(frozen=True)
class Die:
    """Kill the worker of this number before or after the barrier; the others finish."""

    number: int
    before: bool = False

    def __call__(self, channel: WorkerChannel) -> str:
        if self.before:
            self._kill(channel)
        channel.wait_at_barrier()
        self._kill(channel)
        channel.count_completed()
        return "alive"

    def _kill(self, channel: WorkerChannel) -> None:
        if channel.number == self.number:
            os.kill(os.getpid(), signal.SIGKILL)
