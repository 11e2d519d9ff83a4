"""What the anomalies can fail with."""

from __future__ import annotations

from django_lockstep.errors import LockstepError

__all__ = ["AnomaliesError"]


class AnomaliesError(LockstepError):
    """The anomalies could not be played on this database."""
