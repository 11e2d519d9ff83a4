"""Locking for any model: row locks, versions, retries. No tables, no models of its own.

Import from here; the modules behind it may move.
"""

from accounts.locking.errors import (
    ConcurrencyError,
    DeadlockDetected,
    LockNotAvailable,
    RetriesExhausted,
    SerializationFailure,
    StaleVersionError,
    translated_errors,
)
from accounts.locking.retry import retry_on_conflict, retrying
from accounts.locking.rows import lock_row, lock_rows
from accounts.locking.transactions import transaction
from accounts.locking.versions import VersionedModel

__all__ = [
    "ConcurrencyError",
    "DeadlockDetected",
    "LockNotAvailable",
    "RetriesExhausted",
    "SerializationFailure",
    "StaleVersionError",
    "VersionedModel",
    "lock_row",
    "lock_rows",
    "retry_on_conflict",
    "retrying",
    "transaction",
    "translated_errors",
]
