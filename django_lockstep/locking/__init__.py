"""Locking for any model: row locks, versions, retries. No tables, no models of its own.

Import from here; the modules behind it may move.
"""

from django_lockstep.errors import (
    CommittedThenFailed,
    ConcurrencyError,
    DeadlockDetected,
    LockNotAvailable,
    RetriesExhausted,
    SerializationFailure,
    StaleVersionError,
    translated_errors,
)
from django_lockstep.locking.fields import VersionField
from django_lockstep.locking.ignoring import ignore_versions
from django_lockstep.locking.merge import FieldConflict, Merge, merge_fields
from django_lockstep.locking.ordered import aclaim, aupdate_in_order, claim, update_in_order
from django_lockstep.locking.querysets import VersionedManager, VersionedQuerySet
from django_lockstep.locking.retry import retry_on_conflict, retrying
from django_lockstep.locking.rows import alock_row, alock_rows, lock_row, lock_rows
from django_lockstep.locking.shapes import CompiledManager, CompiledQuerySet
from django_lockstep.locking.transactions import isolated_transaction
from django_lockstep.locking.triggers import AddVersionGuard
from django_lockstep.locking.verifying import averify_unchanged, verify_unchanged
from django_lockstep.locking.versions import VersionedModel

__all__ = [
    "AddVersionGuard",
    "CommittedThenFailed",
    "CompiledManager",
    "CompiledQuerySet",
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
    "aclaim",
    "alock_row",
    "alock_rows",
    "aupdate_in_order",
    "averify_unchanged",
    "claim",
    "ignore_versions",
    "isolated_transaction",
    "lock_row",
    "lock_rows",
    "merge_fields",
    "retry_on_conflict",
    "retrying",
    "translated_errors",
    "update_in_order",
    "verify_unchanged",
]
