"""Which columns one ``save()`` of a versioned model writes: decided as late as Django allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import models

from django_lockstep.locking.fields import uncounted_fields
from django_lockstep.locking.memory import has_changes, is_changed

_SAVING = "_versioned_saving"


@dataclass(slots=True, kw_only=True)
class Saving:
    """A save of an existing row."""

    names: list[str] | None
    """The fields asked for, None for all."""
    counts: bool
    """Whether it raises the version."""

    def columns(self, instance: models.Model, values: list[Any]) -> list[Any]:
        """Return which of one table's columns are written.

        Called after the ``pre_save`` receivers, so that their changes are written. Without a counted change, only
        changed uncounted columns are written, and the version stays. An uncounted column that did not change is left
        out: another transaction may have incremented it in the meantime.
        """
        self.counts = self.counts or has_changes(instance, self.names)
        uncounted = uncounted_fields(type(instance))
        if not uncounted:
            return values if self.counts else []
        return [value for value in values if (is_changed(instance, value[0]) if value[0] in uncounted else self.counts)]


def begin_saving(instance: models.Model, names: list[str] | None, *, force: bool) -> Saving | None:
    """Attach a running save to the instance; return the one before, for `set_saving` after it."""
    before = current_saving(instance)  # a receiver of pre_save may save the instance itself
    # Compared now as well: saving a new file commits it before its column is written, and it then looks unchanged.
    set_saving(instance, Saving(names=names, counts=force or has_changes(instance, names)))
    return before


def set_saving(instance: models.Model, saving: Saving | None) -> None:
    setattr(instance._state, _SAVING, saving)


def current_saving(instance: models.Model) -> Saving | None:
    """Return the running save of the instance; None for an INSERT or a raw save."""
    running: Saving | None = getattr(instance._state, _SAVING, None)
    return running
