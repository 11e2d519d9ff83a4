"""The simulator's error."""

from django_lockstep.errors import LockstepError


class SimulationError(LockstepError):
    """The simulation cannot run here; the message says what to change."""
