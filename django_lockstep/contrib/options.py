"""Types for ``argparse``; each raises ``ArgumentTypeError`` with the value and the rule."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from datetime import timedelta

from django_lockstep.locking.durations import seconds

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def count(text: str) -> int:
    """Return a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r}: must be a positive integer")
    return int(text)


def duration(text: str) -> timedelta:
    """Return a duration greater than zero, and of at most a century: an integer with s, m, h, d or w."""
    match = re.fullmatch(r"(\d+)([smhdw])", text)
    if match is None or int(match[1]) == 0:
        raise ArgumentTypeError(f"{text!r}: must be a duration such as 90s, 15m, 12h, 30d or 4w")
    try:
        return timedelta(seconds=seconds(timedelta(**{_UNITS[match[2]]: int(match[1])}), name="the duration"))
    except (OverflowError, ValueError) as error:
        raise ArgumentTypeError(f"{text!r}: the duration is too long") from error
