"""Errors of the finder.

FinderError
├── NotARecording      the file is not a recording, or of another version
└── ParserMissing      the extra ``finder`` is not installed
"""

from __future__ import annotations

from django_lockstep.errors import LockstepError

__all__ = ["FinderError", "NotARecording", "ParserMissing"]


class FinderError(LockstepError):
    """Races could not be looked for."""


class NotARecording(FinderError, ValueError):
    """The file is not a recording that this version can read."""


class ParserMissing(FinderError, ImportError):
    """The package that parses SQL is not installed."""
