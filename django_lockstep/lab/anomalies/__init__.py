"""The isolation anomalies, found on the server at hand."""

from django_lockstep.lab.anomalies.errors import AnomaliesError
from django_lockstep.lab.anomalies.results import AnomalyCell, AnomalyReport
from django_lockstep.lab.anomalies.run import find_anomalies, select_cases

__all__ = ["AnomaliesError", "AnomalyCell", "AnomalyReport", "find_anomalies", "select_cases"]
