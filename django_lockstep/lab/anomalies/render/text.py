"""One cell as a timeline."""

from __future__ import annotations

from django_lockstep.lab.anomalies.render.wording import cell_title, prevention
from django_lockstep.lab.anomalies.results import AnomalyCell, AnomalyReport
from django_lockstep.lab.explorer import timeline

__all__ = ["as_timeline"]


def as_timeline(report: AnomalyReport, cell: AnomalyCell) -> str:
    """Return what the anomaly is, whether it is possible, and the run that shows it, statement by statement."""
    anomaly = next(named for named in report.anomalies if named.name == cell.anomaly)
    verdict = f"prevented: {', '.join(prevention(cell))}" if cell.verdict == "prevented" else cell.verdict
    lines = [f"{cell_title(cell)} on {report.server}: {verdict}", f"{anomaly.title}: {anomaly.text}", cell.reason]
    return "\n".join([*lines, "", *([timeline(cell.run)] if cell.run else [])])
