"""What is to be measured."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How every strategy is loaded. Raises ``ValueError``, naming the option, for values that make no sense."""

    workers: int = 8
    """Processes that work at the same time, each with one connection."""
    duration: float | None = 3.0
    """Seconds a strategy; None where ``operations`` limits it."""
    operations: int | None = None
    """Operations a strategy, shared out evenly among the workers; None where ``duration`` limits it."""
    think_time: float = 0.0
    """Seconds that each worker waits between two operations."""
    laps: int = 1
    """Turns in which a strategy does its part, the others' turns between them: what the machine does meanwhile hits
    all of them alike."""

    def __post_init__(self) -> None:
        whole_number(self.workers, name="--workers")
        parts = self.workers * whole_number(self.laps, name="--laps")
        if (self.duration is None) == (self.operations is None):
            raise ValueError("A strategy is limited by --duration or by --operations: give one of them")
        if self.operations is not None and whole_number(self.operations, name="--operations") < parts:
            each = f"{self.workers} workers" + (f" in each of {self.laps} laps" if self.laps > 1 else "")
            raise ValueError(f"--operations {self.operations} is not one for each of {each}")
        if self.duration is not None and not (math.isfinite(self.duration) and self.duration > 0):
            raise ValueError(f"--duration must be more than 0 seconds, not {self.duration}")
        if not (math.isfinite(self.think_time) and self.think_time >= 0):
            raise ValueError(f"--think-time must be 0 seconds or more, not {self.think_time}")

    def operations_of(self, worker: int, *, lap: int = 0) -> int | None:
        """Return the worker's part of the operations in a lap, or None where time is the limit."""
        if self.operations is None:
            return None
        parts = self.workers * self.laps
        return self.operations // parts + (lap * self.workers + worker < self.operations % parts)

    @property
    def seconds(self) -> float | None:
        """The length of a lap; None where operations are the limit."""
        return None if self.duration is None else self.duration / self.laps

    @property
    def extent(self) -> str:
        """How long a strategy runs, in words."""
        return f"{self.duration:g} s" if self.operations is None else f"{self.operations:,} operations"


def whole_number(value: int, *, name: str) -> int:
    """Return a value of at least 1. Raises ``ValueError`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
    return value
