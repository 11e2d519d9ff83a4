"""Errors of the explorer.

ExplorerError
├── NotExplorable      the database or the code cannot be explored
├── NotWritable        a step or a table cannot be written in a spec of isolationtester
├── ScheduleError      a schedule names an actor that cannot move
├── Nondeterminism     the same schedule led to other statements
│   └── Overtaken      waiters went on in another order than they arrived
└── Stuck              a step neither ends nor waits for a lock
    └── TooManySteps        a run takes more steps than it may
"""

from __future__ import annotations

from django_lockstep.errors import LockstepError

__all__ = [
    "ExplorerError",
    "Nondeterminism",
    "NotExplorable",
    "NotWritable",
    "ScheduleError",
    "Stuck",
    "WorkerDied",
]


class ExplorerError(LockstepError):
    """The race lab could not do what was asked."""


class NotExplorable(ExplorerError):
    """Interleavings cannot be explored here."""


class NotWritable(ExplorerError):
    """A run cannot be written as a spec of isolationtester."""


class ScheduleError(ExplorerError, ValueError):
    """The schedule does not fit the scenario."""


class Nondeterminism(ExplorerError):
    """The code under test did something else on the same schedule than before."""


CAUSES = """\
Usual causes, and what to do:
- a cache that an earlier run filled: clear or fill it in set_up, which runs before every schedule
- random values or the time: fix them in set_up, or pass them to the actors from there
- state outside the database, such as variables of a module, files or another service: put it back in set_up"""


class Overtaken(Nondeterminism):
    """The server let waiters go on in another order than they arrived; the schedule is to be run again."""


class Stuck(ExplorerError):
    """A step neither ended nor waited for a lock of another actor."""


class TooManySteps(Stuck):
    """A run took more steps than it may."""


class WorkerDied(ExplorerError):
    """Processes that explored have ended by themselves, again and again."""


class RestartSearch(Exception):
    """Restarts the search, because of something learned that makes earlier runs invalid; never leaves the lab."""


class Abandoned(BaseException):
    """Unwinds an actor whose run is over; a BaseException, so that ``except Exception`` does not catch it."""
