"""Runs that explore races, or replay one schedule of a race, and keep what pages show of them."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from django.utils import timezone

from django_lockstep.lab import conf
from django_lockstep.lab.explorer import ExplorerError, explore, replay
from django_lockstep.lab.explorer.explore import runs_to_draw
from django_lockstep.lab.explorer.render.reports import RaceReport
from django_lockstep.lab.explorer.results import Exploration, Run
from django_lockstep.lab.explorer.search.schedules import write_schedule
from django_lockstep.lab.explorer.tables.scratch import scratch_databases
from django_lockstep.lab.pages.process import LiveProcess, start_run
from django_lockstep.lab.pages.store import LastResult, ShownRace, Store
from django_lockstep.lab.races import ANOMALIES, Race, load_races
from django_lockstep.lab.wording import joined

_TIMEOUT = 15.0
"""Seconds after which a page's exploration starts no further schedule."""
MAX_SCHEDULES = 2000
"""Schedules that a page's exploration runs at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceProgress:
    """Which race is explored, and how far."""

    names: tuple[str, ...]
    """The races, in the order in which they run."""
    number: int = 0
    """Which of them is running, from 1."""
    schedules: int = 0
    """How many schedules of it have been run so far."""
    outcomes: int = 0
    """In how many ways they ended."""
    wrong: bool = False
    """Whether one of them ended wrong."""
    template: str = "lockstep_lab/progress.html"

    @property
    def name(self) -> str:
        """The race that is running."""
        return self.names[max(0, self.number - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RacesRequest:
    """Which races to explore, one after the other, or which schedule of one race to replay."""

    races: tuple[str, ...]
    """Dotted paths, as in the setting ``LOCKSTEP_LAB_RACES``."""
    names: tuple[str, ...]
    schedule: str = ""
    """Empty to explore."""
    max_schedules: int
    """Schedules of each race."""
    most: int = 4
    """Schedules that are drawn of each race besides serial ones, each of which is run twice more."""
    grace: float = 10.0

    @property
    def initial(self) -> RaceProgress:
        return RaceProgress(names=self.names)

    def run(self, process: LiveProcess) -> None:
        """Run them, and keep the report of each; one that fails ends none of the others."""
        races = load_races(self.races)
        with scratch_databases():
            for number, name in enumerate(self.names, start=1):
                if process.stopping:
                    break
                _RaceRun(self, process, RaceProgress(names=self.names, number=number)).run(races[name])


def start_races(store: Store, names: Sequence[str], *, schedule: str = "", most: int = 4) -> None:
    """Start exploring the races of these names, or replaying the schedule of the only one; ``most`` are drawn.

    Raises as `start_run`.
    """
    request = RacesRequest(
        races=(ANOMALIES, *conf.races()),
        names=tuple(names),
        schedule=schedule,
        max_schedules=MAX_SCHEDULES,
        most=most,
    )
    start_run(store, request)


@dataclass(slots=True)
class _RaceRun:
    request: RacesRequest
    process: LiveProcess
    progress: RaceProgress
    ends: set[str] = field(default_factory=set)

    def run(self, race: Race) -> None:
        self.process.report(self.progress)
        try:
            if self.request.schedule:
                self._replay(race, self.request.schedule)
            else:
                self._explore(race)
        except ExplorerError as refused:
            self.process.note(joined([race.name, str(refused)], ": "))
        except Exception as error:  # noqa: BLE001 - of the race, which may raise anything
            traceback.print_exc()
            self.process.note(f"{race.name}: {type(error).__name__}: {error}")

    def _replay(self, race: Race, schedule: str) -> None:
        run = replay(race.scenario, schedule, rows=True)
        report = RaceReport(name=race.name, runs=(run,), as_expected=run.holds or not race.holds)
        shown = ShownRace(report=report)
        # A schedule may be the beginning of the one that was run: both name it.
        for name in {schedule, run.schedule}:
            self.process.store.keep(shown, schedule=name)

    def _explore(self, race: Race) -> None:
        exploration = explore(
            race.scenario,
            max_schedules=self.request.max_schedules,
            timeout=_TIMEOUT,
            stop_on_first=self._count,
        )
        runs = self._runs(race, exploration)
        serial: tuple[Run, ...] = ()
        actors = range(len(race.scenario.actors))
        if len(actors) == 2 and exploration.verdict in {"holds", "broken"}:
            # More actors have too many orders for a page. After the first move each actor goes on as long as it can.
            serial = _replays(race, [write_schedule([actor]) for actor in actors])
        expected = race.as_expected(exploration)
        report = RaceReport(name=race.name, exploration=exploration, runs=runs, serial=serial, as_expected=expected)
        result = LastResult(
            verdict=exploration.verdict,
            as_expected=expected,
            schedules=exploration.schedules,
            seconds=exploration.seconds,
            when=timezone.now(),
        )
        self.process.store.keep(ShownRace(report=report, result=result))

    def _runs(self, race: Race, exploration: Exploration) -> tuple[Run, ...]:
        """Return the runs to draw, with what was seen and locked after each move."""
        # Where every run ends right the simplest ones are serial, and show nothing of how the actors meet: the first
        # one to draw is one in which every actor has begun before one goes on.
        holds = exploration.verdict == "holds"
        runs = _replays(race, [write_schedule(range(len(race.scenario.actors)))]) if holds else ()
        drawn = {run.schedule for run in runs}
        others = runs_to_draw(race.scenario, exploration, most=self.request.most - len(runs), rows=True)
        runs = (*runs, *(run for run in others if run.schedule not in drawn))
        if exploration.failure is None:
            return runs
        # `explore` has kept it without the rows.
        shown = _replays(race, [exploration.failure.schedule]) or (exploration.failure,)
        return (*(replace(exploration.failure, seen=run.seen, held=run.held) for run in shown), *runs[1:])

    def _count(self, run: Run) -> bool:
        """Count a schedule that was run, and return whether it is to be the last one."""
        self.ends.add(repr((run.state, run.errors, run.results, run.holds)))
        wrong = self.progress.wrong or not run.holds
        schedules = self.progress.schedules + 1
        self.progress = replace(self.progress, schedules=schedules, outcomes=len(self.ends), wrong=wrong)
        self.process.report(self.progress)
        return self.process.stopping


def _replays(race: Race, schedules: Iterable[str]) -> tuple[Run, ...]:
    """Return the runs of these schedules, with rows; none if one of them is not possible."""
    try:
        return tuple(replay(race.scenario, schedule, rows=True) for schedule in schedules)
    except ExplorerError:
        return ()
