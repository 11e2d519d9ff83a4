"""The one way around versions: for a block, for models that are named, with every overwritten row in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.db import models

__all__ = ["ignore_versions", "note_ignored", "versions_ignored"]

logger = logging.getLogger("lockstep.locking")

_ignored: ContextVar[frozenset[type[models.Model]]] = ContextVar("models whose versions are ignored")


@contextmanager
def ignore_versions(*named: type[models.Model]) -> Iterator[None]:
    """Let ``save()`` and ``delete()`` of these models' instances overwrite newer rows, in this thread or task.

    For repairs, imports and reverts that are to win over whatever was written since. Each row is locked first, gets a
    version above its own, and is logged with both versions as a warning of ``lockstep.locking`` where it was newer.
    Rows that are gone stay gone, and ``update_if_unchanged()`` is compared as ever. Raises ``TypeError`` if no model is
    named: a switch for all models would be left on for more than was meant.
    """
    if not named:
        raise TypeError("ignore_versions() needs the models whose versions are to be ignored")
    token = _ignored.set(_ignored.get(frozenset()) | frozenset(named))
    try:
        yield
    finally:
        _ignored.reset(token)


def versions_ignored(model: type[models.Model]) -> bool:
    """Whether the code that is running is inside of a block for the model."""
    return any(issubclass(model, each) for each in _ignored.get(frozenset()))


def note_ignored(instance: models.Model, *, action: str, seen: int, found: int) -> None:
    """Log that a version was passed over."""
    logger.warning(
        "%s of %s %r ignores version %d of the row; the instance was read with version %d",
        action,
        instance._meta.label,
        instance.pk,
        found,
        seen,
    )
