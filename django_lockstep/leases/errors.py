"""What holding a lease can fail with.

::

    ConcurrencyError (django_lockstep.errors)
    └── LeaseError
        ├── LeaseNotAcquired
        ├── LeaseLost
        ├── StaleToken
        └── LeaseTimedOut      57014, 55P03   (also django.db.OperationalError)

All carry ``key`` and ``token`` where they are known, and survive pickling.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import OperationalError

from django_lockstep.errors import ConcurrencyError
from django_lockstep.leases.terms import Holder

__all__ = ["LeaseError", "LeaseLost", "LeaseNotAcquired", "LeaseTimedOut", "StaleToken"]


class LeaseError(ConcurrencyError):
    """A lease got in the way: ``key`` and ``token`` say which, each None where unknown."""

    _carried: ClassVar[tuple[str, ...]] = ("key", "token")

    def __init__(self, message: str = "", *, key: str | None = None, token: int | None = None, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.key = key
        self.token = token


class LeaseNotAcquired(LeaseError):
    """Somebody else holds the lease: ``holder`` is the `Holder` who did when it was refused, None if others queue."""

    _carried = (*LeaseError._carried, "holder")

    def __init__(self, message: str = "", *, holder: Holder | None = None, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.holder = holder


class LeaseLost(LeaseError):
    """The lease is no longer held with this token, or nobody can say that it is."""


class StaleToken(LeaseError):
    """The row was written with a higher token: ``token`` is the writer's, ``found`` the row's; nothing was written."""

    _shown = (*LeaseError._shown, "token")


class LeaseTimedOut(LeaseError, OperationalError):
    """The database did not answer in the time that a lease's statement has; nothing was changed."""
