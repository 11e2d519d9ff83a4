"""Errors of the explorer.

ExplorerError
├── NotExplorable      the surroundings do not allow it
├── NotWritable        a step or a table has no place in a spec of isolationtester
├── ScheduleError      a schedule asks for a move that nobody can make
├── Nondeterminism     the same schedule met other statements
│   └── Overtaken      waiters went on in another order than they came
└── Stuck              a step neither ends nor waits for a lock
    └── TooManySteps        a run takes more steps than it may
"""

from __future__ import annotations

from django_lockstep.errors import LockstepError

__all__ = ["ExplorerError", "Nondeterminism", "NotExplorable", "NotWritable", "ScheduleError", "Stuck"]


class ExplorerError(LockstepError):
    """The race lab could not do what was asked."""


class NotExplorable(ExplorerError):
    """Interleavings cannot be explored here."""


class NotWritable(ExplorerError):
    """A run cannot be written as a spec of isolationtester."""


class ScheduleError(ExplorerError, ValueError):
    """The schedule does not fit the scenario."""


class Nondeterminism(ExplorerError):
    """The code under test did something else than the last time on the same schedule."""


class Overtaken(Nondeterminism):
    """The server let waiters go on in another order than they came; the schedule is to be run again."""


class Stuck(ExplorerError):
    """A step neither ended nor waited for a lock of another actor."""


class TooManySteps(Stuck):
    """A run took more steps than it may."""


class RestartSearch(Exception):
    """What was learned changes what the runs so far mean, so that the search begins again; never leaves the lab."""


class Abandoned(BaseException):
    """Unwinds an actor whose run is over; no ``except Exception`` of the code under test catches it."""
