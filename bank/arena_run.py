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
from django_lockstep.lab.simulator.lanes import Lane
from django_lockstep.lab.simulator.load_plan import LoadPlan
from django_lockstep.lab.simulator.report import LoadReport

__all__ = ["KEPT", "ArenaProgress", "ArenaRequest", "ArenaResult"]

KEPT = "arena"
"""The key of the last result in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaProgress:
    """How far each strategy is."""

    lanes: tuple[Lane, ...] = ()
    template: str = "bank/arena_line.html"

    @property
    def operations(self) -> int:
        return sum(lane.operations for lane in self.lanes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaResult:
    """What the last run came to."""

    report: LoadReport
    lanes: tuple[Lane, ...]
    when: datetime


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
        return ArenaProgress()

    def run(self, process: LiveProcess) -> None:
        """Measure, and keep the report; a run that is stopped keeps what it had measured."""
        lanes: tuple[Lane, ...] = ()

        def report_lanes(now: tuple[Lane, ...]) -> None:
            nonlocal lanes
            lanes = now
            process.report(ArenaProgress(lanes=now))

        with StopSignal() as interrupt:
            process.on_stop(lambda: interrupt.request(signal.SIGTERM))
            report = run_load(
                self.config,
                plan=self.plan,
                workload=self.workload,
                interrupt=interrupt,
                terminal=None,
                on_progress=report_lanes,
            )
        process.store.put(KEPT, ArenaResult(report=report, lanes=lanes, when=timezone.now()))
        for note in report.notes:
            process.note(note)
