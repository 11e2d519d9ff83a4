"""What pages show of each outcome besides its end: whether a serial order ends so, and which anomaly it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django_lockstep.lab.explorer.render.explanations import find_explanation
from django_lockstep.lab.explorer.render.reports import RaceReport
from django_lockstep.lab.explorer.results import Exploration, Outcome, Run

__all__ = ["OutcomeCard", "outcome_cards"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeCard:
    """An outcome with what is known about it."""

    outcome: Outcome
    serial: bool | None
    """Whether the actors one after the other end so, in any order; None if that is not known."""
    anomaly: str
    """The anomaly's name; empty if the outcome is right, or its simplest run was not drawn."""


def outcome_cards(report: RaceReport) -> Iterator[OutcomeCard]:
    """Yield a card for each outcome of the report's exploration, the wrong ones first."""
    found = report.exploration
    drawn = {run.schedule: run for run in report.runs if not run.holds}
    for outcome in found.outcomes if found else ():
        run = drawn.get(outcome.schedule)
        anomaly = find_explanation(run).kind if run else ""
        yield OutcomeCard(outcome=outcome, serial=_is_serial(outcome, found, report.serial), anomaly=anomaly)


def _is_serial(outcome: Outcome, found: Exploration | None, serial: tuple[Run, ...]) -> bool | None:
    if any((run.state, run.errors, run.results) == (outcome.state, outcome.errors, outcome.results) for run in serial):
        return True
    # Values that differ from run to run would make equal ends look different.
    return None if found is None or found.not_compared or not serial else False
