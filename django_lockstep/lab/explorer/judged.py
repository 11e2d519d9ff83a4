"""What is kept of a run when it has ended: how it is judged, and what is counted. It can be pickled."""

from __future__ import annotations

from dataclasses import dataclass

from django_lockstep.lab.explorer.driver.trace import Trace
from django_lockstep.lab.explorer.oracle import RunResult, error_name
from django_lockstep.lab.explorer.results import Run
from django_lockstep.lab.explorer.session import ExplorationSession
from django_lockstep.lab.explorer.vacuity import Activity, activity_of

__all__ = ["JudgedRun", "judge_run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """A run without the objects of the code under test, which another process could not load."""

    run: Run | None
    """None if it was abandoned, because an equivalent one is run elsewhere."""
    key: tuple[object, ...]
    """Equal for equivalent results."""
    activity: Activity
    unreached: bool
    """Whether it could not be made, because the server never chose as it would have to."""
    yields: int
    """How often an actor had to yield."""
    opaque: frozenset[str]
    """Why statements were taken to depend on everything."""
    waits: tuple[str, ...]
    """The first word of each statement that waited."""
    errors: tuple[str, ...]
    """The SQLSTATE, or the class, of each statement's error."""


def judge_run(session: ExplorationSession, trace: Trace, ended: RunResult | None) -> JudgedRun:
    """Judge the run that was just played; ``ended`` is None if it was abandoned."""
    operations = [step.operation for step in trace.steps]
    return JudgedRun(
        run=session.judge(ended, trace) if ended else None,
        key=session.oracle.key(ended) if ended else (),
        activity=activity_of(trace.steps, ended.errors if ended else {}, raises=session.options.raises),
        unreached=trace.unreached,
        yields=trace.yields,
        opaque=frozenset(reason for each in operations if each.statement for reason in each.statement.reasons),
        waits=tuple(step.operation.template.split()[0].upper() for step in trace.steps if step.waited_for),
        errors=tuple(error_name(each.error) for each in operations if each.error is not None),
    )
