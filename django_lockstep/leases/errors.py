"""Errors of leases, drawn in `django_lockstep.errors`.

All carry ``key`` and ``token`` where they are known, and survive pickling.
"""

from __future__ import annotations

from typing import ClassVar

from django.core.management.base import CommandError
from django.db import OperationalError

from django_lockstep.errors import ConcurrencyError
from django_lockstep.stores.terms import Holder


class LeaseError(ConcurrencyError):
    """An operation on a lease failed; ``key`` and ``token`` identify it, each None where unknown."""

    _carried: ClassVar[tuple[str, ...]] = ("key", "token")
    key: str | None = None
    token: int | None = None


class LeaseNotAcquired(LeaseError, CommandError):
    """Another holder has the lease: ``holder`` is the `Holder` at that moment, None if others are queueing.

    A management command that does not catch it ends with this sentence instead of a traceback, and with exit status 75.
    """

    returncode = 75
    """EX_TEMPFAIL of sysexits.h: try again later."""
    _carried = (*LeaseError._carried, "holder")
    holder: Holder | None = None


class LeaseLost(LeaseError):
    """The lease is no longer held with this token, or this cannot be confirmed."""


class StaleToken(LeaseError):
    """The row was written with a higher token: ``token`` is the writer's, ``actual`` the row's; nothing was written."""

    _shown = (*LeaseError._shown, "token")


class LeaseTimedOut(LeaseError, OperationalError):
    """The database did not answer within the statement's time limit; nothing was changed."""
