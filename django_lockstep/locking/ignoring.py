"""The one way around versions: for a block, for named models, with every overwritten row in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextvars import ContextVar

from django.db import models

from django_lockstep.locking.decorating import block

logger = logging.getLogger("lockstep.locking")

_ignored: ContextVar[frozenset[type[models.Model]]] = ContextVar("models whose versions are ignored")


@block
def ignore_versions(*named: type[models.Model]) -> Iterator[None]:
    """Let ``save()`` and ``delete()`` of these models' instances overwrite newer rows, in this thread or task.

    For repairs, imports and reverts that must win over later writes. Each row is locked first (FOR UPDATE) and gets a
    version above its own; a row that was newer is logged with both versions as a warning of ``lockstep.locking``.
    Deleted rows stay deleted, and ``update_if_unchanged()`` still compares. Raises ``TypeError`` if no model is named:
    a switch for all models would cover more than was intended.
    """
    if not named:
        raise TypeError("ignore_versions() needs the models whose versions are to be ignored")
    # A context variable, not a global: other threads and tasks keep their checks.
    token = _ignored.set(_ignored.get(frozenset()) | frozenset(named))
    try:
        yield
    finally:
        _ignored.reset(token)


def versions_ignored(model: type[models.Model]) -> bool:
    """Whether the caller runs inside a block for the model."""
    return any(issubclass(model, ignored) for ignored in _ignored.get(frozenset()))
