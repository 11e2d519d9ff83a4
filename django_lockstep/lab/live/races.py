"""Runs that explore races."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field, replace

from django.utils import timezone

from django_lockstep.lab.explorer import ExplorerError
from django_lockstep.lab.explorer.results import Run
from django_lockstep.lab.explorer.scratch import scratch_databases
from django_lockstep.lab.isolated import explore_race
from django_lockstep.lab.live.process import LiveProcess
from django_lockstep.lab.live.store import LastResult
from django_lockstep.lab.races import Race, load_races

__all__ = ["RaceProgress", "RacesRequest"]


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
    """Which races to explore, one after the other."""

    races: tuple[str, ...]
    """Dotted paths, as in the setting ``LOCKSTEP_LAB_RACES``."""
    names: tuple[str, ...]
    max_schedules: int
    """Schedules of each race."""
    timeout: float
    """Seconds for each race."""
    grace: float = 2.0

    @property
    def initial(self) -> RaceProgress:
        return RaceProgress(names=self.names)

    def run(self, process: LiveProcess) -> None:
        """Explore them, and keep the report of each; one that fails ends none of the others."""
        races = load_races(self.races)
        with scratch_databases():
            for number, name in enumerate(self.names, start=1):
                if process.stopping:
                    break
                _Exploration(self, process, RaceProgress(names=self.names, number=number)).run(races[name])


@dataclass(slots=True)
class _Exploration:
    request: RacesRequest
    process: LiveProcess
    progress: RaceProgress
    ends: set[str] = field(default_factory=set)

    def run(self, race: Race) -> None:
        self.process.report(self.progress)
        try:
            self._explore(race)
        except ExplorerError as refused:
            self.process.note(f"{race.name}: {refused}")
        except Exception as error:  # noqa: BLE001 - of the race, which may raise anything
            traceback.print_exc()
            self.process.note(f"{race.name}: {type(error).__name__}: {error}")

    def _explore(self, race: Race) -> None:
        request = self.request
        report = explore_race(race, max_schedules=request.max_schedules, timeout=request.timeout, stop=self._count)
        if (found := report.exploration) is not None:
            result = LastResult(
                verdict=found.verdict,
                as_expected=report.as_expected,
                schedules=found.schedules,
                seconds=found.seconds,
                when=timezone.now(),
            )
            self.process.store.keep(report, result)

    def _count(self, run: Run) -> bool:
        """Count a schedule that was run, and return whether it is to be the last one."""
        self.ends.add(repr((run.state, run.errors, run.results, run.holds)))
        wrong = self.progress.wrong or not run.holds
        schedules = self.progress.schedules + 1
        self.progress = replace(self.progress, schedules=schedules, outcomes=len(self.ends), wrong=wrong)
        self.process.report(self.progress)
        return self.process.stopping
