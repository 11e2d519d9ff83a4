"""The same races explored by the package frontrun, each in its own process, as its documentation describes.

Frontrun replaces locks and intercepts every system call of its process, so it runs in a separate one:
`explored` runs `main` below frontrun's own command, which explores one race and prints what it found as JSON. It gets a
plain PostgreSQL connection by DATABASE_URL. Its own defaults hold (partial-order reduction, at most two
preemptions, stop at the first failure), except for time limits that suit a slow machine, and except for its refusal of
INSERTs whose keys it cannot see.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from benchmarks.database import database_url

__all__ = ["Foreign", "explore_with_frontrun", "missing", "parse_output"]

_START = 30.0
"""Seconds that the process may take for everything but exploring."""
_FRONTRUN = "import sys; from frontrun.cli import main; sys.exit(main(sys.argv[1:]))"
_MAIN = f"import sys, django; django.setup(); from {__name__} import main; main(*sys.argv[1:])"


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """The result of frontrun."""

    verdict: str
    """``holds``, ``broken``, ``inconclusive``, or the error that it ended with."""
    schedules: int
    """Interleavings that it ran."""
    seconds: float
    """Time taken, without the process's start."""
    exhausted: bool
    """Whether it finished before its time limit."""


def missing() -> str | None:
    """Return which packages are not installed; None if all are."""
    absent = [name for name in ("frontrun", "sqlglot") if find_spec(name) is None]
    return f"{' and '.join(absent)} not installed" if absent else None


def explore_with_frontrun(name: str, *, seconds: float) -> Foreign:
    """Let frontrun explore the race of this name for at most ``seconds``."""
    command = [sys.executable, "-c", _FRONTRUN, sys.executable, "-c", _MAIN, name, str(seconds)]
    environment = {**os.environ, "DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
    try:
        done = subprocess.run(  # noqa: S603 - this module, in the interpreter at hand
            command, env=environment, capture_output=True, text=True, check=False, timeout=seconds + _START
        )
    except subprocess.TimeoutExpired:
        return Foreign(verdict="did not end", schedules=0, seconds=seconds + _START, exhausted=False)
    return parse_output(done.stdout, errors=done.stderr)


def parse_output(output: str, *, errors: str) -> Foreign:
    """Return what the process printed as its last line, or its error where it printed nothing."""
    lines = output.strip().splitlines()
    if lines and lines[-1].startswith("{"):
        return Foreign(**json.loads(lines[-1]))
    words = (errors.strip().splitlines() or ["no output"])[-1]
    return Foreign(verdict=f"failed: {words}"[:120], schedules=0, seconds=0.0, exhausted=False)


def _explore(name: str, seconds: float) -> Foreign:
    """Explore the race with frontrun's helper for Django."""
    from django.contrib.auth import get_user_model
    from django.db import connection
    from frontrun.contrib.django import django_dpor

    from accounts.models import Account, Entry
    from accounts.races.ready_made import RACES

    scenario = RACES[name].scenario
    tables = ", ".join(connection.ops.quote_name(model._meta.db_table) for model in (get_user_model(), Account, Entry))

    def setup() -> Any:
        with connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {tables} RESTART IDENTITY CASCADE")
        return scenario.set_up()

    begun = time.monotonic()
    try:
        result = django_dpor(
            setup=setup,
            threads=list(scenario.actors.values()),
            invariant=scenario.invariant,
            total_timeout=seconds,
            timeout_per_run=20.0,
            deadlock_timeout=20.0,
            warn_nondeterministic_sql=False,
        )
    except Exception as error:  # noqa: BLE001 - what it raises is what it found
        taken = time.monotonic() - begun
        return Foreign(verdict=f"raised {type(error).__name__}: {error}", schedules=0, seconds=taken, exhausted=False)
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {tables} RESTART IDENTITY CASCADE")
    taken = time.monotonic() - begun
    words = {True: "holds", False: "broken", None: "inconclusive"}
    return Foreign(
        verdict=words[result.property_holds],
        schedules=result.num_explored,
        seconds=taken,
        exhausted=taken < seconds,
    )


def main(name: str, seconds: str) -> None:
    """Explore one race and print the result as JSON."""
    found = _explore(name, float(seconds))
    print(json.dumps({key: getattr(found, key) for key in Foreign.__slots__}))  # noqa: T201 - the answer
    sys.stdout.flush()
    os._exit(0)  # threads that hang in an unfinished interleaving must not keep the process
