"""Durations as callers write them."""

import math
from datetime import timedelta

Duration = timedelta | float | int
"""A ``timedelta``, or a number of seconds."""
_LONGEST = 100 * 365.25 * 24 * 3600


def seconds(value: Duration, *, name: str, or_zero: bool = False) -> float:
    """Return the duration in seconds.

    Raises ``TypeError`` for anything but a timedelta or a number, ``ValueError`` unless it is above zero (``or_zero``:
    at least zero) and at most 100 years: a time that it is added to must be one of the database's and of Python's.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a timedelta or a number of seconds, not {value!r}")
    if not math.isfinite(value) or value < 0 or (value == 0 and not or_zero):
        bound = "at least zero" if or_zero else "greater than zero"
        raise ValueError(f"{name} must be finite and {bound}, not {value!r}")
    if value > _LONGEST:
        raise ValueError(f"{name} must be at most {_LONGEST:.0f} seconds (100 years), not {value!r}")
    return float(value)


def in_seconds(duration: timedelta) -> str:
    """Return the duration for people to read, rounded to seconds: ``0:01:30``, or ``2 days, 0:00:00``."""
    return str(timedelta(seconds=round(duration.total_seconds())))
