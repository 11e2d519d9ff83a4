"""Errors of stores, drawn in `django_lockstep.errors`.

All survive pickling. A write whose condition does not hold is an answer, not an error.
"""

from __future__ import annotations

from django.db import OperationalError

from django_lockstep.errors import LockstepError


class StoreError(LockstepError):
    """A store failed; ``store`` is its name in ``LOCKSTEP_STORES``, ``code`` the server's name of the error."""

    def __init__(self, message: str = "", *, store: str | None = None, code: str | None = None) -> None:
        # Not super(): OperationalError is another base of some leaves.
        Exception.__init__(self, message or (type(self).__doc__ or "").partition("\n")[0])
        self.store = store
        self.code = code


class StoreUnavailable(StoreError, OperationalError):
    """The store did not answer in time, or refused to for its load.

    A write may have happened. An ``OperationalError`` too, as where a database cannot be reached.
    """


class StoreRefused(StoreError):
    """The server refused the request: credentials, permissions, a missing table."""


class TokenReused(StoreError, ValueError):
    """The idempotency token belongs to another transaction."""
