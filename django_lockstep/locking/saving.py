"""What one ``save()`` of a versioned model writes: decided as late as Django lets it be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import models

from django_lockstep.locking.fields import uncounted_fields
from django_lockstep.locking.memory import has_changes, is_changed

__all__ = ["Saving", "current_saving", "saving"]

_SAVING = "_versioned_saving"


@dataclass(slots=True, kw_only=True)
class Saving:
    """A save of a row that is there."""

    names: list[str] | None
    """The fields asked for, None for all."""
    counts: bool
    """Whether it writes a new version."""

    def columns(self, instance: models.Model, values: list[Any]) -> list[Any]:
        """Return which of one table's columns are written.

        Django asks after its ``pre_save`` receivers have changed what they want to, so that their changes are written.
        Without a change that counts, the version stays, and so does everything but the uncounted columns that changed.
        These are left out wherever they did not change: others count them up meanwhile.
        """
        self.counts = self.counts or has_changes(instance, self.names)
        uncounted = uncounted_fields(type(instance))
        return [value for value in values if (is_changed(instance, value[0]) if value[0] in uncounted else self.counts)]


@contextmanager
def saving(instance: models.Model, names: list[str] | None, *, force: bool) -> Iterator[None]:
    """Let the instance know, inside the block, what is saved."""
    before = current_saving(instance)  # a receiver of pre_save may save the instance itself
    # Asked now too: a new file is committed, and looks like an old one, before its column is written.
    setattr(instance._state, _SAVING, Saving(names=names, counts=force or has_changes(instance, names)))
    try:
        yield
    finally:
        setattr(instance._state, _SAVING, before)


def current_saving(instance: models.Model) -> Saving | None:
    """Return the save that the instance is in the midst of; None for an INSERT or a raw save."""
    running: Saving | None = getattr(instance._state, _SAVING, None)
    return running
