"""Errors of the queue, in addition to those that refuse a change, and which errors are worth a retry."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import Error, InterfaceError, OperationalError

from accounts.errors import AccountError
from django_lockstep.errors import ConcurrencyError, sqlstate_of

__all__ = ["ChangeFailed", "StillQueued", "is_transient"]


class StillQueued(ConcurrencyError, TimeoutError):
    """No consumer has decided about the change within the timeout; it may still be applied or refused."""


class ChangeFailed(AccountError):
    """The database, or the project's own code, refused to write the change; it stays in the queue as failed.

    ``cause`` is the name of the error's class; ``sqlstate`` and ``constraint`` are the database's, or None. The message
    is only the error's first line: the others could contain values of rows.
    """

    cause: str
    sqlstate: str | None
    constraint: str | None

    @classmethod
    def from_error(cls, error: Error | ValidationError) -> ChangeFailed:
        """Return the `ChangeFailed` with the facts of this error, which itself may not be picklable."""
        message = "; ".join(error.messages) if isinstance(error, ValidationError) else str(error).partition("\n")[0]
        diagnosis = getattr(error.__cause__, "diag", None)
        facts = {"sqlstate": sqlstate_of(error), "constraint": getattr(diagnosis, "constraint_name", None)}
        return cls(message, cause=type(error).__name__, **facts)


def is_transient(error: Exception) -> bool:
    """Whether the same change may succeed if it is retried.

    True for a lost connection, a deadlock, a limit of time or resources, and a server that starts or is read-only
    (SQLSTATE class 25).
    """
    passing = isinstance(error, OperationalError | InterfaceError | ConcurrencyError)
    return passing or (sqlstate_of(error) or "").startswith("25")
