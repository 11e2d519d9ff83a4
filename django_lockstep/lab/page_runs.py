"""Runs races for pages: in processes of their own, within limits, and for one page at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import connection

from django_lockstep.lab import conf
from django_lockstep.lab.anomalies.requests import AnomalyRequest, AnomalySpecRequest
from django_lockstep.lab.anomalies.results import AnomalyReport
from django_lockstep.lab.anomalies.run import AnomalyCase
from django_lockstep.lab.explorer import ExplorerError
from django_lockstep.lab.explorer.reports import RaceReport
from django_lockstep.lab.isolated import IsolatedRequest, RaceRequest, SpecRequest, run_isolated

__all__ = [
    "MAX_SCHEDULES",
    "TIMEOUT",
    "RunRefused",
    "exclusive_run",
    "require_runs",
    "run_anomaly",
    "run_anomaly_spec",
    "run_races",
    "run_spec",
]

Result = TypeVar("Result")

TIMEOUT = 15.0
"""Seconds after which a page's exploration starts no further schedule."""
MAX_SCHEDULES = 2000
"""Schedules that a page's exploration runs at most."""
_LOCK = "SELECT pg_try_advisory_lock(hashtextextended('lockstep.lab.views', 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended('lockstep.lab.views', 0))"


class RunRefused(Exception):
    """The page does not run the race; the message says why, ``status`` is the response's."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status

    @classmethod
    def busy(cls) -> RunRefused:
        """Return the refusal while a page runs races."""
        return cls("Another page is running a race. Try again when it has finished.", status=409)


def run_races(names: Iterable[str], *, schedule: str = "") -> list[RaceReport]:
    """Explore the registered races of these names one after the other, or replay the one schedule in each.

    Raises `RunRefused` where the settings, another page or the explorer refuse, ``RuntimeError`` for an error of a
    race.
    """
    return _run_alone(
        RaceRequest(
            races=tuple(conf.races()),
            names=tuple(names),
            schedule=schedule,
            max_schedules=MAX_SCHEDULES,
            timeout=TIMEOUT,
        )
    )


def run_spec(name: str, *, schedule: str) -> str:
    """Run the schedule of one race and return it as a spec for isolationtester. Raises as `run_races`."""
    return _run_alone(SpecRequest(races=tuple(conf.races()), name=name, schedule=schedule, seconds=TIMEOUT))


def run_anomaly(case: AnomalyCase) -> AnomalyReport:
    """Explore one case and return a report of this cell, which has a run to draw. Raises as `run_races`."""
    return _run_alone(_anomaly_request(case))


def run_anomaly_spec(case: AnomalyCase, *, schedule: str) -> str:
    """Run the schedule of one case and return it as a spec for isolationtester. Raises as `run_races`."""
    return _run_alone(AnomalySpecRequest(cell=_anomaly_request(case), schedule=schedule))


def _anomaly_request(case: AnomalyCase) -> AnomalyRequest:
    limits: dict[str, Any] = {"max_schedules": MAX_SCHEDULES, "seconds": TIMEOUT}
    return AnomalyRequest(anomaly=case.anomaly.name, kind=case.kind, column=case.column, **limits)


def _run_alone(request: IsolatedRequest[Result]) -> Result:
    require_runs()
    with exclusive_run(connection):
        try:
            return run_isolated(request)
        except ExplorerError as error:
            raise RunRefused(str(error), status=409) from error


def require_runs() -> None:
    """Raise `RunRefused` where pages may not run races."""
    if not conf.runs_in_pages():
        raise RunRefused("Races do not run from this page: LOCKSTEP_LAB_RUNS_IN_PAGES is off.", status=403)


@contextmanager
def exclusive_run(connection: Any) -> Iterator[None]:
    """Keep other pages from running a race at the same time, because one keeps a processor busy.

    An exclusive advisory lock of the connection's session, taken without waiting. Raises `RunRefused` if it is taken,
    and on databases other than PostgreSQL.
    """
    if connection.vendor != "postgresql":
        raise RunRefused(f"Races need PostgreSQL; this database is {connection.vendor}.", status=409)
    with connection.cursor() as cursor:
        # Tried, not awaited: a request that waits would keep a thread of the server busy for as long as the race runs.
        cursor.execute(_LOCK)
        (taken,) = cursor.fetchone()
        if not taken:
            raise RunRefused.busy()
        try:
            yield
        finally:
            cursor.execute(_UNLOCK)
