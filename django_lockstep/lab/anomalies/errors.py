"""The error of the anomalies."""

from __future__ import annotations

from django_lockstep.errors import LockstepError

__all__ = ["AnomaliesError"]


class AnomaliesError(LockstepError):
    """The anomalies cannot be run on this database."""
