"""Errors of the embedded server, each with what to do about it."""

from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError


def unavailable(reason: str) -> ImproperlyConfigured:
    """Return the error for a machine that cannot run the embedded server."""
    return ImproperlyConfigured(
        f"The embedded PostgreSQL is not available here: {reason}. Set DATABASE_URL to a PostgreSQL server of your "
        "own, for example DATABASE_URL=postgresql://user:password@localhost:5432/bank"
    )


def unusable(folder: Path, reason: str) -> ImproperlyConfigured:
    """Return the error for a data folder that the embedded server must not use."""
    return ImproperlyConfigured(
        f"The embedded PostgreSQL cannot use the data folder {folder}: {reason}. Set BANK_PGDATA to another folder, "
        "or DATABASE_URL to a PostgreSQL server of your own"
    )


def failed(folder: Path, what: str, details: str) -> OperationalError:
    """Return the error for a server that failed to start, with the end of its log."""
    return OperationalError(
        f"The embedded PostgreSQL of {folder} {what}:\n{details.strip()}\n"
        "(set DATABASE_URL to use a PostgreSQL server of your own instead)"
    )
