"""One case for another process, which runs it on a scratch database, and a test of it for a project."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import DEFAULT_DB_ALIAS

from django_lockstep.lab.anomalies.errors import AnomaliesError
from django_lockstep.lab.anomalies.results import AnomalyCell, AnomalyReport, TableKind
from django_lockstep.lab.anomalies.run import AnomalyCase, find_anomalies, scenario, select_cases
from django_lockstep.lab.anomalies.scratch_table import scratch_table
from django_lockstep.lab.explorer import NotExplorable, write_spec

__all__ = ["AnomalyRequest", "AnomalySpecRequest", "anomaly_test"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyRequest:
    """The case by its names, because its functions cannot be pickled."""

    anomaly: str
    """The row."""
    kind: TableKind
    """Which table."""
    column: str
    """The level or strategy."""
    max_schedules: int
    """Schedules after which the cell is incomplete."""
    seconds: float
    """Seconds after which no further schedule is begun, and the cell is incomplete."""

    @property
    def case(self) -> AnomalyCase:
        """The case of these names."""
        (found,) = (one for one in select_cases([self.anomaly]) if (one.kind, one.column) == (self.kind, self.column))
        return found

    def run(self) -> AnomalyReport:
        """Explore the case. Raises `ExplorerError`, also where the table cannot be created."""
        with _refusals():
            return find_anomalies([self.case], max_schedules=self.max_schedules, timeout=self.seconds, show=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalySpecRequest:
    """The case's schedule that a report shows, to be written as a spec for isolationtester."""

    cell: AnomalyRequest
    """The case."""
    schedule: str
    """The schedule."""

    @property
    def seconds(self) -> float:
        """Seconds that it may take."""
        return self.cell.seconds

    def run(self) -> str:
        """Run the schedule, and return the spec. Raises as `AnomalyRequest.run`."""
        with _refusals(), scratch_table(DEFAULT_DB_ALIAS):
            return write_spec(scenario(self.cell.case), self.schedule, database_is_mine=True).text


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except AnomaliesError as error:
        raise NotExplorable(str(error)) from error


_TEST = """\
import pytest
from django_lockstep.lab.anomalies import find_anomalies, select_cases


@pytest.mark.django_db(transaction=True)
def test_{name}():
    (case,) = select_cases(["{anomaly}"], levels={levels}, strategies={strategies})
    (cell,) = find_anomalies([case]).cells
    assert cell.verdict == "{verdict}", cell.reason
"""


def anomaly_test(cell: AnomalyCell) -> str:
    """Return a test file that fails on a server where this case does not end as it did here."""
    name = re.sub(r"\W+", "_", f"{cell.anomaly}_{cell.column}".lower())
    levels, strategies = ([cell.column] if cell.kind == kind else [] for kind in ("level", "strategy"))
    facts = {"name": name, "anomaly": cell.anomaly, "verdict": cell.verdict}
    return _TEST.format(**facts, levels=levels, strategies=strategies)
