"""The isolation anomalies, as races: what each isolation level of the server at hand allows."""

from django_lockstep.lab.anomalies.definitions import (
    ANOMALIES,
    LEVELS,
    POSSIBLE,
    RACES,
    REFUSALS,
    SOURCES,
    Anomaly,
    race_name,
)

__all__ = ["ANOMALIES", "LEVELS", "POSSIBLE", "RACES", "REFUSALS", "SOURCES", "Anomaly", "race_name"]
