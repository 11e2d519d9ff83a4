"""What waiting for a queued change can fail with, besides what the change was refused with."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import Error, InterfaceError, OperationalError

from accounts.errors import AccountError
from django_lockstep.errors import ConcurrencyError, sqlstate_of

__all__ = ["ChangeFailed", "StillQueued", "may_pass"]


class StillQueued(ConcurrencyError, TimeoutError):
    """No consumer has decided about the change in time: it may still be applied, or refused."""


class ChangeFailed(AccountError):
    """The database, or the project's own code, refused to write the change; a consumer has set it aside.

    ``cause`` is the name of the error's class, ``sqlstate`` and ``constraint`` what the database said, or None. The
    message is the error's first line: what follows could show the rows.
    """

    cause: str
    sqlstate: str | None
    constraint: str | None

    @classmethod
    def because(cls, error: Error | ValidationError) -> ChangeFailed:
        """Return the error that stands for this one."""
        message = "; ".join(error.messages) if isinstance(error, ValidationError) else str(error).partition("\n")[0]
        diagnosis = getattr(error.__cause__, "diag", None)
        facts = {"sqlstate": sqlstate_of(error), "constraint": getattr(diagnosis, "constraint_name", None)}
        return cls(message, cause=type(error).__name__, **facts)


def may_pass(error: Exception) -> bool:
    """Whether the error is about the moment and not about the change: sent again, the same may succeed.

    A lost connection, a deadlock, a limit of time or of resources, a server that starts or only reads (class 25).
    """
    passing = isinstance(error, OperationalError | InterfaceError | ConcurrencyError)
    return passing or (sqlstate_of(error) or "").startswith("25")
