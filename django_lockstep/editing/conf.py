"""The app's settings, read when they are needed, and their check."""

from datetime import timedelta

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from django_lockstep.locking.durations import Duration, seconds

_DURATIONS = {
    "LOCKSTEP_EDIT_TTL": timedelta(minutes=30),  # how long a check-out lasts
    "LOCKSTEP_EDIT_IDLE": timedelta(minutes=5),  # how long a user without input still counts as active
    "LOCKSTEP_EDIT_HISTORY": timedelta(days=90),  # how long ``purge_check_outs`` keeps ended check-outs
    "LOCKSTEP_EDIT_API_TOKEN_AGE": timedelta(days=1),  # how long a token of ``manage.py edit_token`` is valid
    "LOCKSTEP_EDIT_API_MAX_TTL": timedelta(days=1),  # the longest ttl of a check-out or an extension by request
}
"""The defaults of settings that are a duration."""


def duration(name: str) -> timedelta:
    """Return the setting of this name."""
    return timedelta(seconds=seconds(getattr(settings, name, _DURATIONS[name]), name=name))


def time_to_live(ttl: Duration | None) -> timedelta:
    """Return the time to live that was asked for, or ``LOCKSTEP_EDIT_TTL``."""
    return duration("LOCKSTEP_EDIT_TTL") if ttl is None else timedelta(seconds=seconds(ttl, name="ttl"))


def api_max_depth() -> int | None:
    """``LOCKSTEP_EDIT_API_MAX_DEPTH`` (default 3): the largest depth of a request; None: no limit."""
    depth = getattr(settings, "LOCKSTEP_EDIT_API_MAX_DEPTH", 3)
    if depth is None or (isinstance(depth, int) and not isinstance(depth, bool) and depth >= 0):
        return depth
    raise ValueError(f"LOCKSTEP_EDIT_API_MAX_DEPTH must be None or an integer of at least 0, not {depth!r}")


@register
def check_settings(app_configs: object, **kwargs: object) -> list[CheckMessage]:
    """Report settings that are not a duration, or not a number."""
    messages: list[CheckMessage] = []
    for name in _DURATIONS:
        try:
            duration(name)
        except (TypeError, ValueError) as error:
            hint = "Use a timedelta or a positive number of seconds."
            messages.append(Error(str(error), hint=hint, id="lockstep.E023"))
    try:
        api_max_depth()
    except ValueError as error:
        messages.append(Error(str(error), id="lockstep.E060"))
    return messages
