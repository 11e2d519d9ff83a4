"""Safe concurrent writes in Django: the names that most projects need.

Each name is imported at its first use: this package is in INSTALLED_APPS, and Django imports it before models can be
defined. Everything else is in the rooms: ``locking``, ``leases``, ``stores``, ``editing``, ``http``, ``admin`` and
``monitor``; and ``lab``, which django-lockstep-lab installs here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django_lockstep.lazy import lazy_exports

if TYPE_CHECKING:
    from django_lockstep.errors import (
        CommittedThenFailed,
        ConcurrencyError,
        DeadlockDetected,
        LockNotAvailable,
        LockstepError,
        RetriesExhausted,
        SerializationFailure,
        StaleVersionError,
    )
    from django_lockstep.locking.fields import VersionField
    from django_lockstep.locking.ordered import claim, update_in_order
    from django_lockstep.locking.retry import retry_on_conflict
    from django_lockstep.locking.rows import lock_row, lock_rows
    from django_lockstep.locking.transactions import isolated_transaction
    from django_lockstep.locking.triggers import AddVersionGuard
    from django_lockstep.locking.verifying import verify_unchanged
    from django_lockstep.locking.versions import VersionedModel

__all__ = [
    "AddVersionGuard",
    "CommittedThenFailed",
    "ConcurrencyError",
    "DeadlockDetected",
    "LockNotAvailable",
    "LockstepError",
    "RetriesExhausted",
    "SerializationFailure",
    "StaleVersionError",
    "VersionField",
    "VersionedModel",
    "claim",
    "isolated_transaction",
    "lock_row",
    "lock_rows",
    "retry_on_conflict",
    "update_in_order",
    "verify_unchanged",
]


if not TYPE_CHECKING:  # a type checker knows the names from above, and should know no others
    __getattr__, __dir__ = lazy_exports(__name__, "errors", "locking")
