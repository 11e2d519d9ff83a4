"""Commands in processes of their own, on the database of the test."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from tests.support.processes import run, start
from tests.support.sessions import query, until


def environment(**changes: str) -> dict[str, str]:
    """Return the environment of a command that works on the database of the test."""
    live = {
        "DJANGO_SETTINGS_MODULE": "tests.django_lockstep.lab.live_settings",
        "LAB_TEST_DATABASE": connection.settings_dict["NAME"],
    }
    return {**os.environ, **live, **changes}


def manage(command: str, *args: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, without the project's checks, which would take longer than most of them."""
    return run("-X", "dev", "manage.py", command, "--skip-checks", *args, **environment(**changes))


@contextmanager
def simulating(*args: str) -> Iterator[subprocess.Popen[str]]:
    """Start a simulation in a process group of its own, and go on when its workers write; all end with the block."""
    process = start("manage.py", "simulate", "--skip-checks", *args, env=environment(), stderr=subprocess.PIPE)
    try:
        until(lambda: bool(query("SELECT EXISTS (SELECT FROM accounts_entry)")), "the first entry")
        yield process
    finally:
        if any_left(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def any_left(group: int) -> bool:
    """Whether a process of the group runs; one that has ended and was not yet taken note of does not."""
    listing = subprocess.run(["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True, check=True).stdout
    states = [line.split()[1] for line in listing.splitlines() if line.split()[0] == str(group)]
    return any(not state.startswith("Z") for state in states)


def sessions() -> int:
    """Return how many workers of simulations work on the database of the test."""
    ours = "application_name LIKE 'simulate-%%' AND datname = current_database()"
    return int(query(f"SELECT count(*) FROM pg_stat_activity WHERE {ours}"))
