"""Edit locks: check out a table or a record for editing, with everything its foreign keys refer to.

Import from here; the modules behind it may move. What needs the app's tables is imported when it is first asked for,
because Django imports this package before there are models.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_lockstep.editing.abstract import EditLockedModel
    from django_lockstep.editing.errors import EditingError, EditLocked, EditLockLost
    from django_lockstep.editing.fences import fence
    from django_lockstep.editing.operations import announce, check_in, check_out, extend, status_of, take_over
    from django_lockstep.editing.results import EditResult
    from django_lockstep.editing.transitions import transition
    from django_lockstep.editing.triggers import AddEditGuard
    from django_lockstep.editing.writers import writing

__all__ = [
    "AddEditGuard",
    "EditLockLost",
    "EditLocked",
    "EditLockedModel",
    "EditResult",
    "EditingError",
    "announce",
    "check_in",
    "check_out",
    "extend",
    "fence",
    "status_of",
    "take_over",
    "transition",
    "writing",
]

_HOMES = {
    "AddEditGuard": "triggers",
    "EditLockLost": "errors",
    "EditLocked": "errors",
    "EditLockedModel": "abstract",
    "EditResult": "results",
    "EditingError": "errors",
    "fence": "fences",
    "transition": "transitions",
    "writing": "writers",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'operations')}"), name)
