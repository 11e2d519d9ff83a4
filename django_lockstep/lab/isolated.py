"""Runs races in a separate process, on a scratch database; pages run races so.

A scratch database replaces the database of its aliases in the whole process. A web process cannot use one: its other
threads would answer requests from it, and its caches, such as Django's of content types, would keep keys from it. A
process can also be killed at its time limit, whatever the race does. The price is a start of Django for each run.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from django.db import connections

from django_lockstep.lab.explorer import ExplorerError, NotExplorable, explore, replay, write_spec
from django_lockstep.lab.explorer.reports import RaceReport, runs_to_draw
from django_lockstep.lab.explorer.results import Run
from django_lockstep.lab.explorer.schedules import write_schedule
from django_lockstep.lab.explorer.scratch import scratch_databases
from django_lockstep.lab.races import Race, load_races

__all__ = [
    "START",
    "IsolatedRequest",
    "RaceRequest",
    "SpecRequest",
    "database_names",
    "explore_race",
    "redirect_databases",
    "run_isolated",
    "start_python",
]

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)

_MAIN = f"import django; django.setup(); from {__name__} import main; main()"
START = 45.0
"""Seconds that the process may take besides exploring: the first one migrates the scratch database."""


class IsolatedRequest(Protocol[Result_co]):
    """What the process is to do; the request and its result are pickled."""

    @property
    def seconds(self) -> float:
        """Seconds that it may take, besides the start of the process."""

    def run(self) -> Result_co:
        """Run in the process, where all databases are scratch databases. Raises `ExplorerError` for refusals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceRequest:
    """Which races to run, and for how long."""

    races: tuple[str, ...]
    """Dotted paths, as in the setting ``LOCKSTEP_LAB_RACES``."""
    names: tuple[str, ...]
    """Names of the races, which run one after the other."""
    schedule: str
    """The schedule to replay; empty to explore."""
    max_schedules: int
    """Schedules of each race."""
    timeout: float
    """Seconds for each race."""

    @property
    def seconds(self) -> float:
        return self.timeout * len(self.names)

    def run(self) -> list[RaceReport]:
        registered = load_races(self.races)
        return [_run(registered[name], self) for name in self.names]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRequest:
    """Which schedule to write as a spec for isolationtester; writing it runs it."""

    races: tuple[str, ...]
    """Dotted paths, as in the setting ``LOCKSTEP_LAB_RACES``."""
    name: str
    """The race's name."""
    schedule: str
    """The schedule."""
    seconds: float
    """Time limit."""

    def run(self) -> str:
        return write_spec(load_races(self.races)[self.name].scenario, self.schedule).text


def run_isolated(request: IsolatedRequest[Result]) -> Result:
    """Run the request in one new process and return its result.

    Raises `ExplorerError` as ``request.run`` does, and if the process does not end in time; ``RuntimeError`` with the
    traceback for any other error.
    """
    given = pickle.dumps((request, database_names()))
    seconds = request.seconds + START
    with start_python(_MAIN, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            answered, said = process.communicate(given, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise NotExplorable(
                f"The race did not end within {seconds:.0f} s and was stopped. If creating the scratch database takes "
                "so long, `manage.py explore` does it without a limit."
            ) from error
        finally:
            process.kill()
    if process.returncode:
        raise RuntimeError(said.decode(errors="replace"))
    answer: Result | ExplorerError = pickle.loads(answered)  # noqa: S301 - written by the process started above
    if isinstance(answer, ExplorerError):
        raise answer
    return answer


def start_python(code: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start this interpreter with the code, a pipe to its standard input, and ``options`` of ``Popen``."""
    # A new interpreter, not a fork: a web process has threads and open connections, which must not be shared.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)}
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, **options)  # noqa: S603 - code of the lab


def database_names() -> Mapping[str, str]:
    """Return the databases' names by alias, which under a test runner are not those of the settings."""
    return {alias: str(connections[alias].settings_dict["NAME"]) for alias in connections}


def redirect_databases(names: Mapping[str, str]) -> None:
    """Use the databases of the process that started this one: what `database_names` returned there."""
    for alias, name in names.items():
        connections[alias].settings_dict["NAME"] = name


def main() -> None:
    """Read a request from standard input, and write its result, or an error message, to standard output."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # output of the race must not mix with the answer
        request, names = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the process that started this one
        redirect_databases(names)
        pickle.dump(_answer(request), answers)


def _answer(request: IsolatedRequest[Result]) -> Result | ExplorerError:
    try:
        with scratch_databases():
            return request.run()
    except ExplorerError as error:
        return ExplorerError(str(error))  # those of a class of its own may have what cannot be pickled


def _run(race: Race, request: RaceRequest) -> RaceReport:
    if request.schedule:
        return _replay(race, request.schedule)
    return explore_race(race, max_schedules=request.max_schedules, timeout=request.timeout)


def _replay(race: Race, schedule: str) -> RaceReport:
    run = replay(race.scenario, schedule, rows=True)
    return RaceReport(name=race.name, runs=(run,), as_expected=run.holds or not race.holds)


def explore_race(
    race: Race, *, max_schedules: int, timeout: float, stop: Callable[[Run], bool] | None = None
) -> RaceReport:
    """Explore a race, and return what a page shows of it; ``stop`` is `explore`'s ``stop_on_first``."""
    found = explore(race.scenario, max_schedules=max_schedules, timeout=timeout, stop_on_first=stop or False, tree=True)
    runs = tuple(runs_to_draw(race.scenario, found, rows=True))
    if found.failure is not None:  # which `explore` has kept without them
        shown = _replays(race, [found.failure.schedule], rows=True)
        runs = (
            (*(replace(found.failure, seen=each.seen, held=each.held) for each in shown), *runs[1:]) if shown else runs
        )
    serial: tuple[Run, ...] = ()
    actors = range(len(race.scenario.actors))
    if found.verdict == "holds":
        # Where every run ends right the simplest ones are serial, and show nothing of how the actors meet: the first
        # one to draw is one in which every actor has begun before one goes on.
        meeting = _replays(race, [write_schedule(actors)], rows=True)
        runs = (*meeting, *(run for run in runs if run.schedule not in {each.schedule for each in meeting}))
    if len(actors) == 2 and found.verdict in {"holds", "broken"}:
        # More actors have too many orders for a page. After the first move each actor goes on as long as it can.
        serial = _replays(race, [write_schedule([actor]) for actor in actors])
    expected = race.as_expected(found)
    return RaceReport(name=race.name, exploration=found, runs=runs, serial=serial, as_expected=expected)


def _replays(race: Race, schedules: Iterable[str], *, rows: bool = False) -> tuple[Run, ...]:
    """Return the runs of these schedules; none if one of them is not possible."""
    try:
        return tuple(replay(race.scenario, schedule, rows=rows) for schedule in schedules)
    except ExplorerError:
        return ()
