"""Every interleaving of ordinary Django code on a real PostgreSQL."""

from accounts.lab.explorer.drawing import svg
from accounts.lab.explorer.errors import ExplorerError, Nondeterminism, NotExplorable, NotWritable, ScheduleError, Stuck
from accounts.lab.explorer.explanations import explain
from accounts.lab.explorer.explore import explore, replay
from accounts.lab.explorer.results import Deadlock, Exploration, Outcome, Run, Step
from accounts.lab.explorer.specs import Spec, write_spec
from accounts.lab.explorer.timelines import timeline
from accounts.lab.scenario import Scenario

__all__ = [
    "Deadlock",
    "Exploration",
    "ExplorerError",
    "Nondeterminism",
    "NotExplorable",
    "NotWritable",
    "Outcome",
    "Run",
    "Scenario",
    "ScheduleError",
    "Spec",
    "Step",
    "Stuck",
    "explain",
    "explore",
    "replay",
    "svg",
    "timeline",
    "write_spec",
]
