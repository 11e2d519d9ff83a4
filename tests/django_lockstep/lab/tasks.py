"""What workers are told to do in tests; they find it by importing this module."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass

from django.db import connection

from django_lockstep.lab.simulator.desk import Desk


def backend(desk: Desk) -> tuple[str, str]:
    """Return the database and the application name of the worker's session."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database(), current_setting('application_name')")
        database, name = cursor.fetchone()
    return database, name


def draw(desk: Desk) -> float:
    """Return a number from the generator that all of a process share, as pauses between retries do."""
    return random.random()


def start(desk: Desk) -> tuple[int, int]:
    """Return when the worker came to the barrier and when it left."""
    came = time.perf_counter_ns()
    desk.meet()
    return came, time.perf_counter_ns()


def work_until_told(desk: Desk) -> str:
    """Work until told to stop."""
    desk.meet()
    while not desk.stopping:
        desk.beat()
    return "stopped"


def fail(desk: Desk) -> None:
    """Fail."""
    raise RuntimeError("no luck")


def hang(desk: Desk) -> None:
    """Do nothing, and don't look up."""
    desk.meet()
    signal.pause()


@dataclass(frozen=True)
class Die:
    """Kill the worker of this number before or after the barrier; the others finish."""

    number: int
    before: bool = False

    def __call__(self, desk: Desk) -> str:
        if self.before:
            self._kill(desk)
        desk.meet()
        self._kill(desk)
        desk.beat()
        return "alive"

    def _kill(self, desk: Desk) -> None:
        if desk.number == self.number:
            os.kill(os.getpid(), signal.SIGKILL)
