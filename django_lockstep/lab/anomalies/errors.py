"""What the anomalies can fail with."""

from __future__ import annotations

__all__ = ["AnomaliesError"]


class AnomaliesError(Exception):
    """The anomalies could not be played on this database."""
