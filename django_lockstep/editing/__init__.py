"""Edit locks: check out a table or a record for editing, with everything its foreign keys refer to.

Import from here; the modules behind it may move.
"""

from typing import TYPE_CHECKING

from django_lockstep.lazy import lazy_exports

if TYPE_CHECKING:
    from django_lockstep.editing.abstract import EditLockedModel
    from django_lockstep.editing.errors import EditingError, EditLocked, EditLockLost
    from django_lockstep.editing.operations import (
        acheck_in,
        acheck_out,
        aextend,
        announce,
        astatus_of,
        atake_over,
        check_in,
        check_out,
        extend,
        status_of,
        take_over,
    )
    from django_lockstep.editing.results import EditResult
    from django_lockstep.editing.triggers import AddEditGuard
    from django_lockstep.editing.write_checks import require_editable
    from django_lockstep.editing.writers import writing

__all__ = [
    "AddEditGuard",
    "EditLockLost",
    "EditLocked",
    "EditLockedModel",
    "EditResult",
    "EditingError",
    "acheck_in",
    "acheck_out",
    "aextend",
    "announce",
    "astatus_of",
    "atake_over",
    "check_in",
    "check_out",
    "extend",
    "require_editable",
    "status_of",
    "take_over",
    "writing",
]

__getattr__, __dir__ = lazy_exports(
    __name__, "abstract", "errors", "results", "triggers", "writers", "write_checks", "operations"
)
