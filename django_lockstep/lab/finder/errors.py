"""Errors of the finder.

FinderError
├── CannotClone        a request cannot be sent in another test, or by a copy of its user
├── NotASuppression    an entry of pyproject.toml does not say which race is accepted, and why
└── NotARecording      the file is not a recording, or of another version
"""

from __future__ import annotations

from django_lockstep.errors import LockstepError

__all__ = ["CannotClone", "FinderError", "NotARecording"]


class FinderError(LockstepError):
    """Races could not be looked for."""


class CannotClone(FinderError):
    """A request cannot be sent in another test, or its user cannot be copied with all that belongs to them."""


class NotASuppression(FinderError, ValueError):
    """A suppression does not name a site and a reason."""


class NotARecording(FinderError, ValueError):
    """The file is not a recording that this version can read."""
