"""The app's settings, read when they are needed."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from django_lockstep.locking.durations import Duration, seconds


def _duration(value: Any, *, name: str) -> timedelta:
    return timedelta(seconds=seconds(value, name=name))


def time_to_live(ttl: Duration | None = None) -> timedelta:
    """Return the time to live that was asked for, or ``LOCKSTEP_EDIT_TTL`` (default 30 minutes)."""
    default = getattr(settings, "LOCKSTEP_EDIT_TTL", timedelta(minutes=30))
    return _duration(default, name="LOCKSTEP_EDIT_TTL") if ttl is None else _duration(ttl, name="ttl")


def idle_after() -> timedelta:
    """``LOCKSTEP_EDIT_IDLE`` (default 5 minutes): how long a user without input still counts as active."""
    return _duration(getattr(settings, "LOCKSTEP_EDIT_IDLE", timedelta(minutes=5)), name="LOCKSTEP_EDIT_IDLE")


def history_for() -> timedelta:
    """``LOCKSTEP_EDIT_HISTORY`` (default 90 days): how long ended check-outs are kept by ``purge_check_outs``."""
    return _duration(getattr(settings, "LOCKSTEP_EDIT_HISTORY", timedelta(days=90)), name="LOCKSTEP_EDIT_HISTORY")


def api_token_age() -> timedelta:
    """``LOCKSTEP_EDIT_API_TOKEN_AGE`` (default one day): how long a token of ``manage.py edit_token`` is valid."""
    return _duration(
        getattr(settings, "LOCKSTEP_EDIT_API_TOKEN_AGE", timedelta(days=1)), name="LOCKSTEP_EDIT_API_TOKEN_AGE"
    )


def api_max_ttl() -> timedelta:
    """``LOCKSTEP_EDIT_API_MAX_TTL`` (default one day): the longest ttl of a check-out or an extension by request."""
    return _duration(
        getattr(settings, "LOCKSTEP_EDIT_API_MAX_TTL", timedelta(days=1)), name="LOCKSTEP_EDIT_API_MAX_TTL"
    )


def api_max_depth() -> int | None:
    """``LOCKSTEP_EDIT_API_MAX_DEPTH`` (default 3): the largest depth of a request; None: no limit."""
    depth = getattr(settings, "LOCKSTEP_EDIT_API_MAX_DEPTH", 3)
    if depth is None or (isinstance(depth, int) and not isinstance(depth, bool) and depth >= 0):
        return depth
    raise ValueError(f"LOCKSTEP_EDIT_API_MAX_DEPTH must be None or an integer of at least 0, not {depth!r}")


def api_authenticator() -> Callable[[Any, str], Any] | None:
    """``LOCKSTEP_EDIT_API_AUTHENTICATOR`` (default None): dotted path of ``f(request, token) -> user or None``."""
    path = getattr(settings, "LOCKSTEP_EDIT_API_AUTHENTICATOR", None)
    found: Callable[[Any, str], Any] | None = import_string(path) if path else None
    return found
