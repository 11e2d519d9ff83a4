"""Every interleaving of ordinary Django code on a real PostgreSQL."""

from django_lockstep.lab.explorer.errors import (
    ExplorerError,
    Nondeterminism,
    NotExplorable,
    NotWritable,
    ScheduleError,
    Stuck,
    WorkerDied,
)
from django_lockstep.lab.explorer.explore import explore, replay
from django_lockstep.lab.explorer.render.drawing.svg import svg
from django_lockstep.lab.explorer.render.explanations import explain
from django_lockstep.lab.explorer.render.timelines import timeline
from django_lockstep.lab.explorer.requests import Response, request_actor
from django_lockstep.lab.explorer.results import Deadlock, Exploration, Outcome, Raised, Run, Step
from django_lockstep.lab.explorer.spec.specs import Spec, write_spec
from django_lockstep.lab.scenario import Scenario

__all__ = [
    "Deadlock",
    "Exploration",
    "ExplorerError",
    "Nondeterminism",
    "NotExplorable",
    "NotWritable",
    "Outcome",
    "Raised",
    "Response",
    "Run",
    "Scenario",
    "ScheduleError",
    "Spec",
    "Step",
    "Stuck",
    "WorkerDied",
    "explain",
    "explore",
    "replay",
    "request_actor",
    "svg",
    "timeline",
    "write_spec",
]
