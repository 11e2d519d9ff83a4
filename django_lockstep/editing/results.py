"""What the APIs take and what they answer, as frozen dataclasses.

The schemas of the HTTP API and of the GraphQL API are derived from them, with their descriptions.
"""
# ruff: noqa: RUF009 - _described() is dataclasses.field()

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal


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
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), default=datetime.isoformat))
        return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    ttl: float | None = _described(
        "Seconds from now; at most LOCKSTEP_EDIT_API_MAX_TTL. Without it, LOCKSTEP_EDIT_TTL.", default=None
    )
    shared_references: bool = _described(
        "Whether other check-outs that share them may lock the same references.", default=False
    )
    require_token: bool = _described("Whether the token is needed to write, to extend and to check in.", default=False)
    note: str = _described("A message to other users, of at most 200 characters.", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutOptions(_Options):
    """The options of a check-out."""

    related: Literal["references", "none"] = _described("What is locked besides the target.", default="references")
    depth: int | None = _described(
        "The number of foreign keys to follow; at most LOCKSTEP_EDIT_API_MAX_DEPTH.", default=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusTransition(_Options):
    """The statuses that are expected, and those to change them to."""

    table: str = _described("The model's label.")
    record: str | None = _described("The primary key as text; without it, the whole table.", default=None)
    current_status: str = _described("The target's expected status.")
    target_status: str = _described("editing to check it out, normal to check it in.")
    fk_tables: Sequence[str] = _described("The tables to lock: those that the foreign keys lead to.", default=())
    fk_current_status: Sequence[str] = _described("Their expected statuses, in the same order.", default=())
    fk_target_status: Sequence[str] = _described("The statuses to change them to, in the same order.", default=())
    token: str | None = _described(
        "For a check-in: the check-out's token; without it, the editor's latest.", default=None
    )
