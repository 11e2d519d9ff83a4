"""What editing can fail with.

::

    ConcurrencyError (django_lockstep.errors)
    ├── EditLocked             somebody else has it
    ├── EditLockLost           the check-out has ended: expired, taken over, checked in
    └── ReferencesChanged      the record's foreign keys changed while it was being checked out
    EditingError               wrong use; nothing was changed
    ├── UnknownTable           (also LookupError)
    ├── UnknownRecord          (also LookupError)
    ├── NotTheEditor           (also django.core.exceptions.PermissionDenied)
    ├── WrongToken             (also PermissionDenied)
    ├── TakeOverNotAllowed     (also PermissionDenied)
    ├── InvalidTransition      (also ValueError)
    └── LimitExceeded          (also ValueError)

A refused check-out is none of these: it is a result. All survive pickling.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.exceptions import PermissionDenied

from django_lockstep.errors import ConcurrencyError, LockstepError

__all__ = [
    "EditLockLost",
    "EditLocked",
    "EditingError",
    "InvalidTransition",
    "LimitExceeded",
    "NotTheEditor",
    "ReferencesChanged",
    "TakeOverNotAllowed",
    "UnknownRecord",
    "UnknownTable",
    "WrongToken",
]


class EditLocked(ConcurrencyError):
    """Somebody else has checked it out.

    ``holder`` is the user name of who has it, ``since`` and ``expires`` (both aware datetimes) say how long,
    ``locked_by`` names the table or record whose check-out it is.
    """

    def __init__(
        self,
        message: str = "",
        *,
        holder: str = "",
        since: datetime | None = None,
        expires: datetime | None = None,
        locked_by: str = "",
        **facts: Any,
    ) -> None:
        super().__init__(message, **facts)
        self.holder = holder
        self.since = since
        self.expires = expires
        self.locked_by = locked_by

    def __reduce__(self) -> tuple[Any, ...]:
        return _with(super().__reduce__(), self, "holder", "since", "expires", "locked_by")


class EditLockLost(ConcurrencyError):
    """The check-out has ended.

    ``how`` says why (``expired``, ``taken over`` or ``checked in``), ``by`` is the user name of who took it over,
    ``at`` the time of the end.
    """

    def __init__(
        self, message: str = "", *, how: str = "", by: str = "", at: datetime | None = None, **facts: Any
    ) -> None:
        super().__init__(message, **facts)
        self.how = how
        self.by = by
        self.at = at

    def __reduce__(self) -> tuple[Any, ...]:
        return _with(super().__reduce__(), self, "how", "by", "at")


def _with(reduced: tuple[Any, ...], error: ConcurrencyError, *names: str) -> tuple[Any, ...]:
    """Let these attributes travel with a pickled error."""
    rebuild, (cls, message, label, state) = reduced
    return rebuild, (cls, message, label, {**state, **{name: vars(error)[name] for name in names}})


class ReferencesChanged(ConcurrencyError):
    """The record's foreign keys changed while it was being checked out; the check-out may be tried again."""


class EditingError(LockstepError):
    """Editing was used wrongly; nothing was changed."""


class UnknownTable(EditingError, LookupError):
    """There is no such table."""


class UnknownRecord(EditingError, LookupError):
    """There is no such record."""


class NotTheEditor(EditingError, PermissionDenied):
    """Somebody else checked it out, or nobody did."""


class WrongToken(EditingError, PermissionDenied):
    """The token belongs to no check-out of this table or record."""


class TakeOverNotAllowed(EditingError, PermissionDenied):
    """Taking over from others needs the permission ``lockstep_editing.take_over_editlock``."""


class UnrelatedTarget(EditingError, ValueError):
    """The foreign keys of what is checked out do not lead to a table or record that was named along with it."""


class InvalidTransition(EditingError, ValueError):
    """There is no such transition of statuses."""


class LimitExceeded(EditingError, ValueError):
    """A request wants a longer time or more foreign keys than the settings allow."""
