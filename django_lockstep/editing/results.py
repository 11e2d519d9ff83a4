"""Results of the operations: frozen dataclasses, and JSON of the same shape."""

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
    """One check-out and its locks that are relevant here."""

    id: int
    """The check-out's number."""
    editor: str
    """The user name."""
    since: datetime
    expires_at: datetime
    locked_by: str
    """The checked-out table or record, such as ``shop.seat`` or ``shop.seat:5``."""
    holds: tuple[TableStatus, ...]
    """Its locks that are in the way."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditResult:
    """The result of every operation."""

    lock_result: bool
    """Whether the operation succeeded; for a status: whether the token's check-out holds the target."""
    current_status: str
    """The target's status now: ``normal``, ``editing`` or ``locked``."""
    fk_current_status: tuple[TableStatus, ...]
    """The current statuses of the target's references."""
    table: str
    """The target's model."""
    record: str = ""
    """The target's primary key as text; empty for a table."""
    holder: str | None = None
    """The user name of the target's holder, or of the first check-out in the way."""
    locked_by: str | None = None
    """The table or record that the holder has checked out."""
    since: datetime | None = None
    """The start of the holder's check-out."""
    expires_at: datetime | None = None
    """Its expiry, unless it is extended."""
    must_end: tuple[Hold, ...] = ()
    """Other check-outs that must end before the target can be checked out."""
    present: tuple[Hold, ...] = ()
    """Users that announced their presence, which locks nothing."""
    lost: str | None = None
    """For the status of a token whose check-out has ended: the message that says how."""
    token: str | None = None
    """The token of this check-out. Only the result of the editor's own request has it."""

    def using(self, **changes: Any) -> EditResult:
        """Return a copy with these changes."""
        return replace(self, **changes)

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values: times in ISO 8601."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def _plain(value: object) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value
