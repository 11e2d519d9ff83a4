"""The arena's run: a load on several strategies, told lane by lane while it goes on."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from accounts.races.load import Workload
from accounts.races.run import RunConfig, run_load
from django_lockstep.lab.pages.process import LiveProcess
from django_lockstep.lab.simulator.interrupt import StopSignal
from django_lockstep.lab.simulator.load_plan import LoadPlan
from django_lockstep.lab.simulator.progress import Lane
from django_lockstep.lab.simulator.report import LoadReport, LoadRow

KEPT = "arena-result"
"""The key of the last result in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaProgress:
    """How far each strategy is."""

    lanes: tuple[Lane, ...] = ()
    duration: float | None = None
    """Seconds of each strategy."""
    template: str = "bank/arena_line.html"
    names: tuple[str, ...] = ("arena",)

    @property
    def operations(self) -> int:
        return sum(lane.operations for lane in self.lanes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaResult:
    """The last run's report."""

    report: LoadReport
    lanes: tuple[Lane, ...]
    when: datetime
    command: str
    """The same load, as a command line."""

    @property
    def rows(self) -> list[tuple[LoadRow, Lane]]:
        """The measured rows, each with its lane."""
        lanes = {lane.name: lane for lane in self.lanes}
        return [(row, lanes[row.strategy]) for row in self.report.rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaRequest:
    """A load on strategies."""

    config: RunConfig
    plan: LoadPlan
    workload: Workload
    grace: float = 30.0
    """Its rows have to be removed."""

    @property
    def initial(self) -> ArenaProgress:
        return ArenaProgress(duration=self.plan.duration)

    @property
    def command(self) -> str:
        """The same load, as a command line."""
        plan, load = self.plan, self.workload
        think_time = f" --think-time {plan.think_time:g}" if plan.think_time else ""
        return (
            f"python manage.py simulate --strategies {' '.join(self.config.strategies)}"
            f" --workers {plan.workers} --accounts {load.accounts} --mix {load.mix}{think_time}"
            f" --duration {plan.duration:g} --rounds {plan.rounds} --seed {load.seed}"
        )

    def run(self, process: LiveProcess) -> None:
        """Measure, and keep the report; a run that is stopped keeps what it had measured."""
        lanes: tuple[Lane, ...] = ()

        def report_lanes(now: tuple[Lane, ...]) -> None:
            nonlocal lanes
            lanes = now
            # Called several times a second; a second request would end the run at once.
            if process.stopping and not interrupt.requested:
                interrupt.request(signal.SIGTERM)
            process.report(ArenaProgress(lanes=now, duration=self.plan.duration))

        with StopSignal() as interrupt:
            report = run_load(
                self.config,
                plan=self.plan,
                workload=self.workload,
                interrupt=interrupt,
                terminal=None,
                on_progress=report_lanes,
            )
        result = ArenaResult(report=report, lanes=lanes, when=timezone.now(), command=self.command)
        process.store.put(KEPT, result)
        for note in report.notes:
            process.note(note)
