"""Errors of idempotency keys, drawn in `django_lockstep.errors`."""

from __future__ import annotations

from django_lockstep.errors import ConcurrencyError, LockstepError


class KeyInUse(ConcurrencyError):
    """The work for this key is being done.

    Its outcome is not known yet: ask again. ``scope`` and ``key`` say which.
    """

    http_status = 409
    _shown = ("scope", "key", *ConcurrencyError._shown)
    _carried = ("scope", "key")
    scope: str = ""
    key: str = ""


class KeyReused(LockstepError, ValueError):
    """The key was used with other content before; nothing was done."""

    http_status = 422
