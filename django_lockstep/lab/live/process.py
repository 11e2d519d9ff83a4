"""The process of a run: it explores, says how far it is, and ends when it is asked to or when nobody watches."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from django.db import DEFAULT_DB_ALIAS, connections
from django.utils import timezone

from django_lockstep.lab.explorer import ExplorerError
from django_lockstep.lab.explorer.results import Run
from django_lockstep.lab.explorer.scratch import scratch_databases
from django_lockstep.lab.isolated import explore_race, redirect_databases
from django_lockstep.lab.live.store import LastResult, LiveRun, Store
from django_lockstep.lab.page_runs import RunRefused, exclusive_run
from django_lockstep.lab.races import Race, load_races

__all__ = ["LiveRequest", "main"]

_PERIOD = 0.25
"""Seconds between two reports of how far it is."""
_GRACE = 2.0
"""Seconds that the schedule in hand has to end; then the process does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest:
    """What to run; sent pickled."""

    token: str
    folder: Path
    """That of the store."""
    races: tuple[str, ...]
    """Dotted paths, as in the setting ``LOCKSTEP_LAB_RACES``."""
    names: tuple[str, ...]
    """Names of the races, which run one after the other."""
    max_schedules: int
    """Schedules of each race."""
    timeout: float
    """Seconds for each race."""


def main() -> None:
    """Read a request from standard input, and do it."""
    os.dup2(2, 1)  # what a race prints
    request, names = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the process that started this one
    redirect_databases(names)
    _Process(request).main()


class _Process:
    def __init__(self, request: LiveRequest) -> None:
        self._request = request
        self._store = Store(request.folder)
        self._run = LiveRun(token=request.token, names=request.names, state="starting")
        self._ends: set[str] = set()
        self._asked_to_stop = 0.0
        """When, by `time.monotonic`."""
        self._lock = threading.Lock()
        self._alone = False

    def main(self) -> None:
        threading.Thread(target=self._keep_telling, daemon=True).start()
        try:
            self._explore_all()
        except (RunRefused, ExplorerError) as refused:
            self._note(str(refused))
        self._end("stopped" if self._asked_to_stop else "ended")

    def _note(self, problem: str) -> None:
        with self._lock:
            self._run = replace(self._run, problems=(*self._run.problems, problem))

    def _end(self, state: Literal["ended", "stopped"]) -> None:
        with self._lock:
            self._run = replace(self._run, state=state)
            current = self._store.run()
            # One that was refused must not hide the run that goes on.
            if self._alone or current is None or current.token == self._request.token:
                self._store.publish(self._run)

    # In a thread of its own

    def _keep_telling(self) -> None:
        while self._tell():
            time.sleep(_PERIOD)

    def _tell(self) -> bool:
        """Say how far the run is, and return whether it goes on."""
        with self._lock:
            if not self._run.active:
                return False
            if not self._asked_to_stop and (self._store.is_stopped(self._request.token) or not self._store.watched):
                self._asked_to_stop = time.monotonic()
                self._run = replace(self._run, state="stopping")
            if self._alone:
                self._store.publish(self._run)
        if self._asked_to_stop and time.monotonic() - self._asked_to_stop > _GRACE:
            self._end("stopped")
            os._exit(1)  # its database is dropped by the next run
        return True

    # In the main thread

    def _explore_all(self) -> None:
        races = load_races(self._request.races)
        # A connection of its own: those of the project are redirected to the scratch databases.
        with exclusive_run(connections[DEFAULT_DB_ALIAS].copy()):
            self._alone = True
            with scratch_databases():
                for number, name in enumerate(self._request.names, start=1):
                    if self._asked_to_stop:
                        break
                    self._progress(number=number, schedules=0, outcomes=0, wrong=False)
                    self._try(races[name])

    def _try(self, race: Race) -> None:
        try:
            self._explore(race)
        except ExplorerError as refused:
            self._note(f"{race.name}: {refused}")
        except Exception as error:  # noqa: BLE001 - of the race, which may raise anything; the others can still run
            traceback.print_exc()
            self._note(f"{race.name}: {type(error).__name__}: {error}")

    def _explore(self, race: Race) -> None:
        self._ends.clear()
        request = self._request
        report = explore_race(race, max_schedules=request.max_schedules, timeout=request.timeout, stop=self._count)
        if (found := report.exploration) is not None:
            result = LastResult(
                verdict=found.verdict,
                as_expected=report.as_expected,
                schedules=found.schedules,
                seconds=found.seconds,
                when=timezone.now(),
            )
            self._store.keep(report, result)

    def _count(self, run: Run) -> bool:
        """Count a schedule that was run, and return whether it is to be the last one."""
        self._ends.add(repr((run.state, run.errors, run.results, run.holds)))
        wrong = self._run.wrong or not run.holds
        self._progress(schedules=self._run.schedules + 1, outcomes=len(self._ends), wrong=wrong)
        return bool(self._asked_to_stop)

    def _progress(self, **changes: object) -> None:
        with self._lock:
            state = "stopping" if self._asked_to_stop else "running"
            self._run = replace(self._run, state=state, **changes)  # type: ignore[arg-type]
