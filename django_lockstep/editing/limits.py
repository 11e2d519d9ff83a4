"""What the HTTP API lets a user ask for: how long, over how many foreign keys, and which tables along with the own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import models

from django_lockstep.editing.conf import api_max_depth, api_max_ttl
from django_lockstep.editing.errors import LimitExceeded
from django_lockstep.editing.models import Status
from django_lockstep.editing.plans import plan_for
from django_lockstep.editing.targets import Target

__all__ = ["require_time", "require_visible"]


def require_time(ttl: float | None) -> None:
    """Raise `LimitExceeded` for more seconds than ``LOCKSTEP_EDIT_API_MAX_TTL``."""
    longest = api_max_ttl().total_seconds()
    if ttl is not None and ttl > longest:
        raise LimitExceeded(f"ttl must be at most {longest:g} seconds, not {ttl:g}")


def require_visible(
    target: Target, sees: Callable[[type[models.Model]], bool], *, depth: int | None, related: Any
) -> None:
    """Raise ``PermissionDenied`` where the check-out would lock tables that the user does not see.

    `LimitExceeded` for more foreign keys than ``LOCKSTEP_EDIT_API_MAX_DEPTH``.
    """
    deepest = api_max_depth()
    if deepest is not None and (depth is None or depth > deepest):
        raise LimitExceeded(f"depth must be at most {deepest}, not {depth!r}")
    wanted = plan_for(target, depth=depth, related=related).wanted
    if not all(sees(one.target.model) for one in wanted if one.status == Status.LOCKED):
        raise PermissionDenied(
            f"{target.table} refers to tables that you may not see, and which the check-out would lock along with it"
        )
