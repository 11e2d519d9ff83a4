"""Parameters of statements as they are recorded: by position, with a name for the type of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

__all__ = ["first", "positional", "type_name"]

_NAMED = re.compile(r"%\((\w+)\)s")
# From when code asks for the time until the statement is sent.
_MOMENT = timedelta(minutes=1)


def first(sets: Any) -> Any:
    """Return the first of many sets of parameters."""
    return next(iter(sets), ()) if isinstance(sets, Iterable) else ()


def positional(sql: str, params: Any) -> tuple[str, list[Any]]:
    """Return the SQL with placeholders by position, and their values."""
    if isinstance(params, Mapping):
        names = _NAMED.findall(sql)
        return _NAMED.sub("%s", sql), [params.get(name) for name in names]
    return sql, list(params or ())


def type_name(value: object) -> str:
    """Return the type of a parameter; ``now`` for the current time, which a test may have frozen."""
    if isinstance(value, int) and not isinstance(value, bool):
        return "int"  # the driver has classes of its own for integers
    if isinstance(value, datetime):
        return "now" if _is_now(value) else "datetime"
    return type(value).__name__


def _is_now(value: datetime) -> bool:
    now = timezone.now()
    if timezone.is_naive(value) and timezone.is_aware(now):
        now = timezone.make_naive(now)
    return timezone.is_naive(value) == timezone.is_naive(now) and abs(value - now) < _MOMENT
