"""The isolation anomalies, found on the server at hand."""

from accounts.lab.anomalies.errors import AnomaliesError
from accounts.lab.anomalies.results import AnomalyReport, Cell
from accounts.lab.anomalies.run import find_anomalies, questions

__all__ = ["AnomaliesError", "AnomalyReport", "Cell", "find_anomalies", "questions"]
