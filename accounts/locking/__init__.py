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
from accounts.locking.fields import VersionField
from accounts.locking.merge import FieldConflict, Merge, merge_fields
from accounts.locking.querysets import VersionedManager, VersionedQuerySet
from accounts.locking.retry import retry_on_conflict, retrying
from accounts.locking.rows import lock_row, lock_rows
from accounts.locking.transactions import transaction
from accounts.locking.triggers import AddVersionGuard
from accounts.locking.versions import VersionedModel

__all__ = [
    "AddVersionGuard",
    "ConcurrencyError",
    "DeadlockDetected",
    "FieldConflict",
    "LockNotAvailable",
    "Merge",
    "RetriesExhausted",
    "SerializationFailure",
    "StaleVersionError",
    "VersionField",
    "VersionedManager",
    "VersionedModel",
    "VersionedQuerySet",
    "lock_row",
    "lock_rows",
    "merge_fields",
    "retry_on_conflict",
    "retrying",
    "transaction",
    "translated_errors",
]
