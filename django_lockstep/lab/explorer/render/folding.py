"""What timelines of long runs fold into one line: statements about nothing that matters to another actor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from django_lockstep.lab.explorer.render.explanations import find_explanation
from django_lockstep.lab.explorer.render.summaries import summarize
from django_lockstep.lab.explorer.results import Run, Step

__all__ = ["Fold", "find_folds", "is_long"]

_LONG = 40
"""Steps of a run that is shown whole."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Consecutive steps of one actor that are shown as one."""

    steps: tuple[Step, ...]

    @property
    def moves(self) -> range:
        """The moves of the steps."""
        return range(self.steps[0].begun, self.steps[-1].begun + 1)

    @property
    def text(self) -> str:
        """How many there are, and what they are about."""
        summaries = map(summarize, self.steps)
        kinds = dict.fromkeys(f"{summary.verb} {summary.table}".rstrip() for summary in summaries)
        return f"{len(self.steps)} more statements: {', '.join(kinds)}"


def is_long(run: Run) -> bool:
    """Whether the run has too many steps to be shown whole."""
    return len(run.steps) > _LONG


def find_folds(run: Run) -> Mapping[int, Fold]:
    """Return the folds of a long run by their first moves."""
    if not is_long(run):
        return {}
    why = find_explanation(run)
    # A move in which a wait ends is shown even if its own statement is not worth it.
    woken = {step.ended for step in run.steps if step.ended != step.begun}

    def is_foldable(step: Step) -> bool:
        plain = not (step.shared or step.waited_for or step.sqlstate)
        return plain and step is not why.step and not woken & {step.begun, step.ended}

    found = (
        Fold(tuple(steps))
        for (foldable, _), steps in groupby(run.steps, lambda s: (is_foldable(s), s.actor))
        if foldable
    )
    return {fold.moves[0]: fold for fold in found if len(fold.steps) > 1}
