"""Errors of edit locks, drawn in `django_lockstep.errors`.

A refused check-out is not an error but a result. All errors survive pickling.
"""

from __future__ import annotations

from datetime import datetime

from django.core.exceptions import PermissionDenied

from django_lockstep.errors import ConcurrencyError, LockstepError


class EditLocked(ConcurrencyError):
    """Another user has checked it out.

    ``holder`` is that user's name, ``since`` and ``expires`` are aware datetimes, ``locked_by`` names the checked-out
    table or record that causes the lock.
    """

    _carried = ("holder", "since", "expires", "locked_by")
    holder: str = ""
    since: datetime | None = None
    expires: datetime | None = None
    locked_by: str = ""


class EditLockLost(ConcurrencyError):
    """The check-out has ended.

    ``how`` is ``expired``, ``taken over`` or ``checked in``, ``by`` the name of the user that took it over, ``at`` the
    time of the end.
    """

    _carried = ("how", "by", "at")
    how: str = ""
    by: str = ""
    at: datetime | None = None


class ReferencesChanged(ConcurrencyError):
    """The record's foreign keys changed during the check-out, which may be retried."""


class EditingError(LockstepError):
    """An edit-lock operation was misused; nothing was changed."""


class UnknownTable(EditingError, LookupError):
    """There is no such table."""


class UnknownRecord(EditingError, LookupError):
    """There is no such record."""


class NotTheEditor(EditingError, PermissionDenied):
    """The check-out belongs to another user, or does not exist."""


class WrongToken(EditingError, PermissionDenied):
    """The token does not belong to a check-out of this table or record."""


class TakeOverNotAllowed(EditingError, PermissionDenied):
    """Taking over from others needs the permission ``lockstep_editing.take_over_editlock``."""


class UnrelatedTarget(EditingError, ValueError):
    """A table or record named as ``related`` is not reachable by the target's foreign keys."""


class InvalidTransition(EditingError, ValueError):
    """The transition of statuses is not allowed."""


class LimitExceeded(EditingError, ValueError):
    """A request asks for a longer time or more foreign keys than the settings allow."""
