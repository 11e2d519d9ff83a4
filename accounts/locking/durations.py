"""Durations as callers write them."""

import math
from datetime import timedelta

Duration = timedelta | float | int
"""A ``timedelta``, or a number of seconds."""


def seconds(value: Duration, *, name: str) -> float:
    """Return the duration in seconds.

    Raises ``TypeError`` for anything but a timedelta or a number, ``ValueError`` unless it is finite and above zero.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a timedelta or a number of seconds, not {value!r}")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be finite and greater than zero, not {value!r}")
    return float(value)
