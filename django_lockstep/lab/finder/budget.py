"""The time that trying candidates may take, as options give it."""

from __future__ import annotations

import re

__all__ = ["parse_budget"]

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


def parse_budget(text: str) -> float:
    """Return the seconds of a text such as ``90s`` or ``5m``. Raises ``ValueError`` for another one."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if found is None:
        raise ValueError(f"a budget must be a time such as 90s, 5m or 1h, not {text!r}")
    return float(found[1]) * _UNITS[found[2]]
