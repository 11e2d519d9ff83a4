"""Runs one race in a separate process, on a scratch database; pages run races so.

A scratch database replaces the database of its aliases in the whole process. A web process cannot use one: its other
threads would answer requests from it, and its caches, such as Django's of content types, would keep keys from it. A
process can also be killed at its time limit, whatever the race does. The price is a start of Django for each run.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from django.db import connections

from django_lockstep.lab.explorer import ExplorerError, NotExplorable, explore, replay
from django_lockstep.lab.explorer.reports import RaceReport, runs_to_draw
from django_lockstep.lab.explorer.scratch import scratch_databases
from django_lockstep.lab.races import Race, load_races

__all__ = ["RaceRequest", "run_isolated"]

_MAIN = f"import django; django.setup(); from {__name__} import main; main()"
_START = 45.0
"""Seconds that the process may take besides exploring: the first one migrates the scratch database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceRequest:
    """Which race to run, and for how long."""

    races: tuple[str, ...]
    """Dotted paths, as in the setting ``LOCKSTEP_LAB_RACES``."""
    name: str
    """The race's name."""
    schedule: str
    """The schedule to replay; empty to explore."""
    max_schedules: int
    timeout: float


def run_isolated(request: RaceRequest) -> RaceReport:
    """Run the race in a new process and return its report.

    Raises `ExplorerError` as `explore` does, and if the process does not end in time; ``RuntimeError`` with the
    traceback for any other error of the race.
    """
    # A new interpreter, not a fork: a web process has threads and open connections, which must not be shared.
    command = [sys.executable, "-c", _MAIN]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)}
    given = pickle.dumps((request, _database_names()))
    seconds = request.timeout + _START
    try:
        done = subprocess.run(  # noqa: S603 - this module, in the interpreter at hand
            command, input=given, env=environment, capture_output=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        raise NotExplorable(
            f"The race did not end within {seconds:.0f} s and was stopped. If creating the scratch database takes so "
            "long, `manage.py explore` does it without a limit."
        ) from error
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace"))
    answer: RaceReport | str = pickle.loads(done.stdout)  # noqa: S301 - written by the process started above
    if isinstance(answer, str):
        raise ExplorerError(answer)
    return answer


def _database_names() -> Mapping[str, str]:
    """Return the databases' names by alias, which under a test runner are not those of the settings."""
    return {alias: str(connections[alias].settings_dict["NAME"]) for alias in connections}


def main() -> None:
    """Read a request from standard input, and write its report, or an error message, to standard output."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # output of the race must not mix with the answer
        request, names = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the process that started this one
        # Under a test runner the names differ from those of the settings, which the new process has read.
        for alias, name in names.items():
            connections[alias].settings_dict["NAME"] = name
        pickle.dump(_answer(request), answers)


def _answer(request: RaceRequest) -> RaceReport | str:
    race = load_races(request.races)[request.name]
    try:
        with scratch_databases():
            return _replay(race, request.schedule) if request.schedule else _explore(race, request)
    except ExplorerError as error:
        return str(error)


def _replay(race: Race, schedule: str) -> RaceReport:
    run = replay(race.scenario, schedule)
    return RaceReport(name=race.name, runs=(run,), as_expected=run.holds or not race.holds)


def _explore(race: Race, request: RaceRequest) -> RaceReport:
    found = explore(race.scenario, max_schedules=request.max_schedules, timeout=request.timeout)
    runs = tuple(runs_to_draw(race.scenario, found))
    return RaceReport(name=race.name, exploration=found, runs=runs, as_expected=race.as_expected(found))
