"""What waiting for a queued change can fail with, besides what the change was refused with."""

from django_lockstep.errors import ConcurrencyError

__all__ = ["StillQueued"]


class StillQueued(ConcurrencyError, TimeoutError):
    """No consumer has decided about the change in time: it may still be applied, or refused."""
