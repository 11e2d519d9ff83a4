"""Errors of the finder.

FinderError
└── CannotClone        a request cannot be sent in another test, or by a copy of its user
"""

from __future__ import annotations

from django_lockstep.errors import LockstepError


class FinderError(LockstepError):
    """Races could not be looked for: a file is no recording, or an entry of pyproject.toml accepts no race."""


class CannotClone(FinderError):
    """A request cannot be sent in another test, or its user cannot be copied with all that belongs to them."""
