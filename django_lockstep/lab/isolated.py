"""One race in a process of its own, on a scratch database: how pages run races.

Scratch databases are what the aliases of a whole process mean, so that a web process cannot have them: its other
threads would answer requests from there, and its caches, such as Django's of content types, would keep keys from there.
A process can also be killed when its time is up, whatever the race does. It costs a start of Django for each run.
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
from django_lockstep.lab.explorer.reports import Chapter, chosen_runs
from django_lockstep.lab.explorer.scratch import scratch_databases
from django_lockstep.lab.races import Race, races_at

__all__ = ["Request", "run_isolated"]

_MAIN = f"import django; django.setup(); from {__name__} import main; main()"
_START = 45.0
"""Seconds that the process may take besides exploring: the first one migrates the scratch database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to run, and for how long."""

    races: tuple[str, ...]
    """Dotted paths, as in the setting ``LOCKSTEP_LAB_RACES``."""
    name: str
    """The race's name."""
    schedule: str
    """The schedule to replay; empty to explore."""
    max_schedules: int
    timeout: float


def run_isolated(request: Request) -> Chapter:
    """Run the race in a new process and return what came of it.

    Raises `ExplorerError` as `explore` does and where the process does not end in time, ``RuntimeError`` with the
    traceback for any other error of the race.
    """
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
            f"The race did not end within {seconds:.0f} s and was stopped. Where the scratch database is what takes so "
            "long, `manage.py explore` makes it without a limit."
        ) from error
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace"))
    answer: Chapter | str = pickle.loads(done.stdout)  # noqa: S301 - written by the process started above
    if isinstance(answer, str):
        raise ExplorerError(answer)
    return answer


def _database_names() -> Mapping[str, str]:
    """Return the databases' names by alias: under tests not those of the settings."""
    return {alias: str(connections[alias].settings_dict["NAME"]) for alias in connections}


def main() -> None:
    """Read a request from the standard input, and write to the standard output what came of it."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what the race prints is not the answer
        request, names = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the process that started this one
        for alias, name in names.items():
            connections[alias].settings_dict["NAME"] = name
        pickle.dump(_answer(request), answers)


def _answer(request: Request) -> Chapter | str:
    race = races_at(request.races)[request.name]
    try:
        with scratch_databases():
            return _replayed(race, request.schedule) if request.schedule else _explored(race, request)
    except ExplorerError as error:
        return str(error)


def _replayed(race: Race, schedule: str) -> Chapter:
    run = replay(race.scenario, schedule)
    return Chapter(name=race.name, runs=(run,), as_expected=run.holds or not race.holds)


def _explored(race: Race, request: Request) -> Chapter:
    found = explore(race.scenario, max_schedules=request.max_schedules, timeout=request.timeout)
    runs = tuple(chosen_runs(race.scenario, found))
    return Chapter(name=race.name, exploration=found, runs=runs, as_expected=race.as_expected(found))
