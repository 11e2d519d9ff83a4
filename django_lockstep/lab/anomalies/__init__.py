"""The isolation anomalies, found on the server at hand."""

from django_lockstep.lab.anomalies.errors import AnomaliesError
from django_lockstep.lab.anomalies.results import AnomalyReport, Cell
from django_lockstep.lab.anomalies.run import find_anomalies, select_cases

__all__ = ["AnomaliesError", "AnomalyReport", "Cell", "find_anomalies", "select_cases"]
