"""What keeps a simulation from running."""

__all__ = ["SimulationError"]


class SimulationError(Exception):
    """The simulation cannot run here; the message says what to change."""
