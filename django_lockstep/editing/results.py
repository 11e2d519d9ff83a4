"""What the operations answer: frozen data, and JSON of the same shape."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

__all__ = ["EditResult", "Hold", "TableStatus"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """The status of a table or record that the target refers to."""

    table_name: str
    """The model's label in lower case."""
    current_status: str
    """``normal``, ``editing`` or ``locked``."""
    record: str = ""
    """The primary key as text; empty for a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """One check-out and what it holds here."""

    id: int
    """The check-out's number."""
    editor: str
    """The user name."""
    since: datetime
    expires_at: datetime
    locked_by: str
    """What was checked out, such as ``shop.seat`` or ``shop.seat:5``."""
    holds: tuple[TableStatus, ...]
    """What of it is in the way."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditResult:
    """The answer to a check-out and to every other operation."""

    lock_result: bool
    """Whether what was asked for was done; for a status: whether the token's check-out has the target."""
    current_status: str
    """The target's status now: ``normal``, ``editing`` or ``locked``."""
    fk_current_status: tuple[TableStatus, ...]
    """The status now of everything that the target refers to."""
    table: str
    """The target's model."""
    record: str = ""
    """The target's primary key as text; empty for a table."""
    holder: str | None = None
    """The user name of who has the target, or of the first who is in the way."""
    since: datetime | None = None
    """Since when."""
    expires_at: datetime | None = None
    """Until when, unless it is extended."""
    must_end: tuple[Hold, ...] = ()
    """The check-outs of others that would have to end before the target can be checked out."""
    present: tuple[Hold, ...] = ()
    """Who has announced to be there, and keeps nobody out."""
    lost: str | None = None
    """For the status of a token whose check-out has ended: how, and by whom."""
    token: str | None = None
    """What the editor needs to go on with this check-out. Only the answer to that editor's request has it."""

    def using(self, **changes: Any) -> EditResult:
        """Return a copy with these changes."""
        return replace(self, **changes)

    def as_json(self) -> dict[str, Any]:
        """Return the same as what JSON can hold: times in ISO 8601."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value
