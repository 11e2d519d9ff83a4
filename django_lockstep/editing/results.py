"""Results of the operations: frozen dataclasses, and JSON of the same shape.

The HTTP API answers with them as they are, and the types of the GraphQL API are derived from them, with their
descriptions.
"""
# ruff: noqa: RUF009 - _described() is dataclasses.field()

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any


def _described(description: str, **options: Any) -> Any:
    return field(metadata={"description": description}, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """The status of one table or record."""

    table_name: str = _described("The model's label in lower case.")
    current_status: str = _described("Its status now: normal, editing or locked.")
    record: str = _described("The primary key as text; empty for a table.", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """One check-out, or a presence."""

    id: int = _described("The check-out's number.")
    editor: str = _described("The name of the user that has it.")
    since: datetime = _described("When it was checked out.")
    expires_at: datetime = _described("When it ends unless it is extended.")
    locked_by: str = _described("The checked-out table or record, such as shop.seat or shop.seat:5.")
    holds: tuple[TableStatus, ...] = _described("Its locks that are in the way.")
    note: str = _described("The editor's message to other users.", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class EditResult:
    """The result of every operation: granted or refused, or a status."""

    lock_result: bool = _described(
        "Whether the operation succeeded; for a status: whether the token's check-out holds the target."
    )
    current_status: str = _described("The target's status now: normal, editing or locked.")
    fk_current_status: tuple[TableStatus, ...] = _described(
        "The statuses now of what the target's foreign keys refer to."
    )
    table: str = _described("The target's model.")
    record: str = _described("The target's primary key as text; empty for a table.", default="")
    holder: str | None = _described(
        "The name of the user that holds the target, or is the first in the way.", default=None
    )
    locked_by: str | None = _described("The table or record that this user has checked out.", default=None)
    since: datetime | None = _described("When this user checked it out.", default=None)
    expires_at: datetime | None = _described("When that ends unless it is extended.", default=None)
    must_end: tuple[Hold, ...] = _described(
        "Other check-outs that must end before the target can be checked out.", default=()
    )
    present: tuple[Hold, ...] = _described("Users that announced their presence, which locks nothing.", default=())
    lost: str | None = _described("For a token whose check-out has ended: how.", default=None)
    token: str | None = _described("The token of this check-out, for the editor's own request alone.", default=None)

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
