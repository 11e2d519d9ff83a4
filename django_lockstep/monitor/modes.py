"""Lock modes and keys of pg_locks as SQL spells them, and which modes conflict."""

from __future__ import annotations

import re
from typing import Any

_ROW_MODES = {
    "AccessShareLock": "FOR KEY SHARE",
    "RowShareLock": "FOR SHARE",
    "ExclusiveLock": "FOR NO KEY UPDATE",
    "AccessExclusiveLock": "FOR UPDATE",
}
"""The row lock that a session requests if it takes a tuple lock in this mode."""

_WEAK = {"AccessShareLock", "RowShareLock", "RowExclusiveLock"}
_STRONG = {"ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"}
_ALL = _WEAK | _STRONG | {"ShareUpdateExclusiveLock"}

CONFLICTS: dict[str, set[str]] = {
    "AccessShareLock": {"AccessExclusiveLock"},
    "RowShareLock": {"ExclusiveLock", "AccessExclusiveLock"},
    "RowExclusiveLock": _STRONG,
    "ShareUpdateExclusiveLock": _STRONG | {"ShareUpdateExclusiveLock"},
    "ShareLock": _ALL - {"AccessShareLock", "RowShareLock", "ShareLock"},
    "ShareRowExclusiveLock": _ALL - {"AccessShareLock", "RowShareLock"},
    "ExclusiveLock": _ALL - {"AccessShareLock"},
    "AccessExclusiveLock": _ALL,
}
"""The held modes that each requested mode conflicts with (PostgreSQL documentation, table "Conflicting Lock Modes")."""


def mode_in_sql(mode: str | None, *, row: bool = False) -> str | None:
    """Return the mode of a lock, or of a row's tuple lock, as SQL spells it."""
    if mode is None or row:
        return _ROW_MODES.get(mode or "")
    return re.sub(r"(?<!^)(?=[A-Z])", " ", mode.removesuffix("Lock")).upper()


def advisory_key(row: dict[str, Any]) -> int | tuple[int, int]:
    """Return the key from its parts in pg_locks: a bigint in two halves, or (``objsubid`` 2) two integers."""
    if row["objsubid"] == 2:
        return _signed(row["classid"], bits=32), _signed(row["objid"], bits=32)
    return _signed(row["classid"] << 32 | row["objid"], bits=64)


def _signed(number: int, *, bits: int) -> int:
    return number - (1 << bits) if number >> (bits - 1) else number
