"""Limits of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# The function, not the module: in the threads of actors `time` may have a virtual clock.
from time import monotonic

from django_lockstep.lab.explorer.driver.trace import Trace
from django_lockstep.lab.explorer.effects.origins import line_of
from django_lockstep.lab.explorer.errors import TooManySteps

__all__ = ["MAX_STEPS", "Limits"]

MAX_STEPS = 1000
"""Steps that one run may have by default."""


@dataclass(slots=True, kw_only=True)
class Limits:
    """What ends a run that does not end by itself."""

    max_steps: int = MAX_STEPS
    """Steps that a run may have."""
    deadline: float | None = None
    """When it is abandoned, by `time.monotonic`."""

    def is_over(self, trace: Trace, names: Sequence[str]) -> bool:
        """Whether the time is over. Raises `TooManySteps` if the run goes on after its last allowed step."""
        if len(trace.moves) >= self.max_steps:
            last = trace.steps[-1]
            at = f" at {line_of(last.operation.origin)}" if last.operation.origin else ""
            raise TooManySteps(
                f"The run did not end within {self.max_steps} steps (max_steps); the last one was "
                f"{last.operation.template!r} of {names[last.actor]}{at}"
            )
        trace.out_of_time = self.deadline is not None and monotonic() >= self.deadline
        return trace.out_of_time
