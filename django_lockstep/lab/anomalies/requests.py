"""One case for another process, which runs it on a scratch database."""

from __future__ import annotations

from dataclasses import dataclass

from django_lockstep.lab.anomalies.errors import AnomaliesError
from django_lockstep.lab.anomalies.results import AnomalyReport, TableKind
from django_lockstep.lab.anomalies.run import find_anomalies, select_cases
from django_lockstep.lab.explorer import NotExplorable

__all__ = ["AnomalyRequest"]


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

    def run(self) -> AnomalyReport:
        """Explore the case. Raises `ExplorerError`, also where the table cannot be created."""
        asked = [case for case in select_cases([self.anomaly]) if (case.kind, case.column) == (self.kind, self.column)]
        try:
            return find_anomalies(asked, max_schedules=self.max_schedules, timeout=self.seconds, show=True)
        except AnomaliesError as error:
            raise NotExplorable(str(error)) from error
