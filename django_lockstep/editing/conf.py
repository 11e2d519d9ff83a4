"""The app's settings, read when they are needed, and their check."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.utils.module_loading import import_string

from django_lockstep.locking.durations import Duration, seconds


def _duration(name: str, default: timedelta) -> timedelta:
    return timedelta(seconds=seconds(getattr(settings, name, default), name=name))


def time_to_live(ttl: Duration | None = None) -> timedelta:
    """Return the time to live that was asked for, or ``LOCKSTEP_EDIT_TTL`` (default 30 minutes)."""
    if ttl is not None:
        return timedelta(seconds=seconds(ttl, name="ttl"))
    return _duration("LOCKSTEP_EDIT_TTL", timedelta(minutes=30))


def idle_after() -> timedelta:
    """``LOCKSTEP_EDIT_IDLE`` (default 5 minutes): how long a user without input still counts as active."""
    return _duration("LOCKSTEP_EDIT_IDLE", timedelta(minutes=5))


def history_for() -> timedelta:
    """``LOCKSTEP_EDIT_HISTORY`` (default 90 days): how long ended check-outs are kept by ``purge_check_outs``."""
    return _duration("LOCKSTEP_EDIT_HISTORY", timedelta(days=90))


def api_token_age() -> timedelta:
    """``LOCKSTEP_EDIT_API_TOKEN_AGE`` (default one day): how long a token of ``manage.py edit_token`` is valid."""
    return _duration("LOCKSTEP_EDIT_API_TOKEN_AGE", timedelta(days=1))


def api_max_ttl() -> timedelta:
    """``LOCKSTEP_EDIT_API_MAX_TTL`` (default one day): the longest ttl of a check-out or an extension by request."""
    return _duration("LOCKSTEP_EDIT_API_MAX_TTL", timedelta(days=1))


def api_max_depth() -> int | None:
    """``LOCKSTEP_EDIT_API_MAX_DEPTH`` (default 3): the largest depth of a request; None: no limit."""
    depth = getattr(settings, "LOCKSTEP_EDIT_API_MAX_DEPTH", 3)
    return None if depth is None else _count("LOCKSTEP_EDIT_API_MAX_DEPTH", depth, rule="None or an integer")


def trusted_proxies() -> int:
    """``LOCKSTEP_TRUSTED_PROXIES`` (default 0): how many proxies before the server append to ``X-Forwarded-For``."""
    return _count("LOCKSTEP_TRUSTED_PROXIES", getattr(settings, "LOCKSTEP_TRUSTED_PROXIES", 0), rule="an integer")


def _count(name: str, value: object, *, rule: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError(f"{name} must be {rule} of at least 0, not {value!r}")


def api_authenticator() -> Callable[[Any, str], Any] | None:
    """``LOCKSTEP_EDIT_API_AUTHENTICATOR`` (default None): dotted path of ``f(request, token) -> user or None``."""
    path = getattr(settings, "LOCKSTEP_EDIT_API_AUTHENTICATOR", None)
    authenticator: Callable[[Any, str], Any] | None = import_string(path) if path else None
    return authenticator


@register
def check_settings(app_configs: object, **kwargs: object) -> list[CheckMessage]:
    """Report settings that are not a duration, or not a number."""
    messages: list[CheckMessage] = []
    for read in (time_to_live, idle_after, history_for, api_token_age, api_max_ttl):
        try:
            read()
        except (TypeError, ValueError) as error:
            hint = "Use a timedelta or a positive number of seconds."
            messages.append(Error(str(error), hint=hint, id="lockstep.E023"))
    for read_count in (api_max_depth, trusted_proxies):
        try:
            read_count()
        except ValueError as error:
            messages.append(Error(str(error), id="lockstep.E060"))
    return messages
