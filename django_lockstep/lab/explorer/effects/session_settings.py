"""Reads SET and ``set_config()``: whether they are harmless, set the isolation level, or change what names mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

__all__ = ["changes_session", "is_harmless_set", "isolation_level_set"]

_LEVEL = re.compile(
    r"\b(?:ISOLATION\s+LEVEL\s+|transaction_isolation\s*(?:=|TO\b)\s*)'?"
    r"(READ\s+COMMITTED|READ\s+UNCOMMITTED|REPEATABLE\s+READ|SERIALIZABLE)\b",
    re.IGNORECASE,
)
_SET = re.compile(r'(?:SET|RESET)\s+(?:LOCAL\s+|SESSION\s+)?"?([\w.]+)"?', re.IGNORECASE)
_OF_TRANSACTION = re.compile(r"SET\s+(TRANSACTION\s+(?!SNAPSHOT)|CONSTRAINTS\b)", re.IGNORECASE)
_CONFIGURED = re.compile(r"\bset_config\s*\(\s*(?:'([^']*)'|(%s)|)", re.IGNORECASE)
_HARMLESS = frozenset(
    [
        "application_name",
        "client_min_messages",
        "datestyle",
        "deadlock_timeout",
        "idle_in_transaction_session_timeout",
        "jit",
        "lock_timeout",
        "maintenance_work_mem",
        "statement_timeout",
        "synchronous_commit",
        "time",  # TIME ZONE
        "timezone",
        "transaction_timeout",
        "work_mem",
    ]
)


def isolation_level_set(sql: str) -> str | None:
    """Return the isolation level that the statement sets for its transaction; None if it does not."""
    found = _LEVEL.search(sql)
    return " ".join(found[1].lower().split()).replace("uncommitted", "committed") if found else None


def changes_session(sql: str, params: Any) -> bool:
    """Whether a statement that was not understood may change names, levels or transactions of the session."""
    return any(_part_changes_session(part.strip()) for part in sql.split(";")) or not _sets_only_harmless(sql, params)


def _part_changes_session(part: str) -> bool:
    word = part.partition(" ")[0].upper()
    if re.search(r"\btransaction_isolation\b|\bISOLATION LEVEL\b", part, re.IGNORECASE) and word != "SELECT":
        return isolation_level_set(part) != "read committed" or "CHARACTERISTICS" in part.upper()
    if word in {"SET", "RESET"}:
        return not (_OF_TRANSACTION.match(part) or is_harmless_set(part))
    return word in {"DISCARD", "CREATE", "ALTER", "DROP", "PREPARE", "COMMIT", "END", "ROLLBACK", "ABORT"}


def is_harmless_set(sql: str) -> bool:
    """Whether a SET changes only how the session waits or prints; not its role, schemas, triggers or plans."""
    found = _SET.match(sql)
    return found is not None and _is_harmless(found[1])


def _is_harmless(name: str) -> bool:
    # Names with a dot are the application's own.
    return "." in name or name.lower() in _HARMLESS


def _sets_only_harmless(sql: str, params: Any) -> bool:
    """Whether every ``set_config()`` in the statement is harmless."""
    given: Sequence[Any] = params if isinstance(params, list | tuple) else ()
    for found in _CONFIGURED.finditer(sql):
        place = sql[: found.start()].count("%s")
        name = given[place] if found[2] and place < len(given) else found[1]
        if not name or not _is_harmless(str(name)):
            return False
    return True
