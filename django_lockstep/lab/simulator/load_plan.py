"""How much load a trial puts on a strategy, for how long, and what a sweep varies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from django_lockstep.lab.wording import counted

Axis = Literal["workers", "accounts"]
"""What a sweep can vary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """How every strategy is loaded. Raises ``ValueError``, naming the option, for values that make no sense."""

    workers: int = 8
    """Processes that work at the same time, each with one connection."""
    duration: float | None = 3.0
    """Seconds for each strategy; None where ``operations`` limits it."""
    operations: int | None = None
    """Operations for each strategy, divided evenly among the workers; None where ``duration`` limits it."""
    think_time: float = 0.0
    """Seconds that each worker waits between two operations."""
    rounds: int = 1
    """Parts that a strategy's run is divided into, with the others' rounds between them: so a machine that slows down
    for a while slows all of them down."""

    def __post_init__(self) -> None:
        positive_int(self.workers, name="--workers")
        parts = self.workers * positive_int(self.rounds, name="--rounds")
        if (self.duration is None) == (self.operations is None):
            raise ValueError("A strategy is limited by --duration or by --operations: give one of them")
        if self.operations is not None and positive_int(self.operations, name="--operations") < parts:
            shares = f"{self.workers} workers" + (f" in each of {self.rounds} rounds" if self.rounds > 1 else "")
            raise ValueError(f"--operations must be at least {parts}, one for each of {shares}, not {self.operations}")
        if self.duration is not None and not (math.isfinite(self.duration) and self.duration > 0):
            raise ValueError(f"--duration must be more than 0 seconds, not {self.duration}")
        if not (math.isfinite(self.think_time) and self.think_time >= 0):
            raise ValueError(f"--think-time must be 0 seconds or more, not {self.think_time}")

    def operations_of(self, worker: int, *, round_number: int = 0) -> int | None:
        """Return the worker's share of the operations of a round, or None where time is the limit."""
        if self.operations is None:
            return None
        parts = self.workers * self.rounds
        # The first parts get one more each, so that the shares add up to exactly so many.
        return self.operations // parts + (round_number * self.workers + worker < self.operations % parts)

    @property
    def seconds(self) -> float | None:
        """The length of a round; None where operations are the limit."""
        return None if self.duration is None else self.duration / self.rounds

    @property
    def extent(self) -> str:
        """How long a strategy runs, in words."""
        return f"{self.duration:g} s" if self.operations is None else f"{self.operations:,} operations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The sizes at which the same strategies are measured in one run."""

    axis: Axis
    """Which number is varied."""
    values: tuple[int, ...]
    """Its values, without duplicates, in ascending order."""

    @classmethod
    def parse(cls, text: str) -> Sweep:
        """Return the sweep written as ``workers=1,2,4``. Raises ``ValueError`` for anything else."""
        axis, _, listing = text.partition("=")
        words = [word.strip() for word in listing.split(",")]
        if axis not in get_args(Axis) or not all(word.isdecimal() for word in words):
            raise ValueError(f"--sweep must be workers=N,N,... or accounts=N,N,..., not {text!r}")
        # Ascending, since the advice compares the last size with the best one.
        values = sorted({positive_int(int(word), name=f"--sweep {axis}") for word in words})
        return cls(axis=axis, values=tuple(values))  # type: ignore[arg-type]

    def describe(self, value: int) -> str:
        """Return a size in words, such as ``8 workers``."""
        return counted(value, self.axis.removesuffix("s"))


def positive_int(value: int, *, name: str) -> int:
    """Return the value. Raises ``ValueError``, naming the option, unless it is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive integer, not {value!r}")
    return value
