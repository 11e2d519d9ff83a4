"""The types of the schema. Their objects are those of `django_lockstep.editing.results`, which have the same names."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

import strawberry

__all__ = ["CheckOutOptions", "EditResult", "Hold", "Related", "Status", "TableStatus", "TransitionInput"]

_TTL = "Seconds from now; at most LOCKSTEP_EDIT_API_MAX_TTL. Without it, LOCKSTEP_EDIT_TTL."
_RECORD = "The primary key as text; without it, the whole table."
_NOTE = "A message to other users, of at most 200 characters."
_REQUIRE_TOKEN = "Whether the token is needed to write, to extend and to check in."  # noqa: S105
_SHARED = "Whether other check-outs that share them may lock the same references."


@strawberry.enum(description="The status of a table or a record.")
class Status(Enum):
    """The values of `django_lockstep.editing.models.Status`, under the names of the schema."""

    normal = strawberry.enum_value("normal", description="Nobody holds it.")
    editing = strawberry.enum_value("editing", description="A user has checked it out for editing.")
    locked = strawberry.enum_value("locked", description="Something checked out refers to it and needs it unchanged.")


@strawberry.enum(description="What a check-out locks besides its target.")
class Related(Enum):
    """The values of ``related`` that a request may give by itself."""

    references = strawberry.enum_value("references", description="What the foreign keys refer to, over depth steps.")
    none = strawberry.enum_value("none", description="Nothing.")


@strawberry.type(description="The status of one table or record.")
class TableStatus:
    """A reference of the target, or a lock of a check-out."""

    table_name: str = strawberry.field(description="The model's label in lower case.")
    record: str = strawberry.field(description="The primary key as text; empty for a table.")
    current_status: Status = strawberry.field(description="Its status now.")


@strawberry.type(description="One check-out.")
class Hold:
    """Somebody's check-out that is in the way, or a presence."""

    id: strawberry.ID = strawberry.field(description="The check-out's number.")
    editor: str = strawberry.field(description="The name of the user that has it.")
    since: datetime = strawberry.field(description="When it was checked out.")
    expires_at: datetime = strawberry.field(description="When it ends unless it is extended.")
    locked_by: str = strawberry.field(description="The checked-out table or record, such as shop.seat or shop.seat:5.")
    holds: list[TableStatus] = strawberry.field(description="Its locks that are in the way.")
    note: str = strawberry.field(description="The editor's message to other users.")


@strawberry.type(description="The result of every operation.")
class EditResult:
    """A granted or refused operation, or a status."""

    lock_result: bool = strawberry.field(
        description="Whether the operation succeeded; for a status: whether the token's check-out holds the target."
    )
    current_status: Status = strawberry.field(description="The target's status now.")
    fk_current_status: list[TableStatus] = strawberry.field(
        description="The statuses now of what the target's foreign keys refer to."
    )
    table: str = strawberry.field(description="The target's model.")
    record: str = strawberry.field(description="The target's primary key as text; empty for a table.")
    holder: str | None = strawberry.field(
        name="editor", description="The name of the user that holds the target, or is the first in the way."
    )
    locked_by: str | None = strawberry.field(description="The table or record that this user has checked out.")
    since: datetime | None = strawberry.field(description="When this user checked it out.")
    expires_at: datetime | None = strawberry.field(description="When that ends unless it is extended.")
    must_end: list[Hold] = strawberry.field(
        description="Other check-outs that must end before the target can be checked out."
    )
    present: list[Hold] = strawberry.field(description="Users that announced their presence, which locks nothing.")
    lost: str | None = strawberry.field(description="For a token whose check-out has ended: how.")
    token: str | None = strawberry.field(description="The token of this check-out, for the editor's own request alone.")


@strawberry.input(description="The options of a check-out.")
class CheckOutOptions:
    """Those of `django_lockstep.editing.check_out` that a request may give."""

    ttl: float | None = strawberry.field(default=None, description=_TTL)
    related: Related = strawberry.field(default=Related.references, description="What is locked besides the target.")
    depth: int | None = strawberry.field(
        default=1, description="The number of foreign keys to follow; at most LOCKSTEP_EDIT_API_MAX_DEPTH."
    )
    shared_references: bool = strawberry.field(default=False, description=_SHARED)
    require_token: bool = strawberry.field(default=False, description=_REQUIRE_TOKEN)
    note: str = strawberry.field(default="", description=_NOTE)


@strawberry.input(description="The statuses that are expected, and those to change them to.")
class TransitionInput:
    """The request of the mutation ``transition``; the three lists belong together."""

    table: str = strawberry.field(description="The model's label.")
    record: str | None = strawberry.field(default=None, description=_RECORD)
    current_status: Status = strawberry.field(description="The target's expected status.")
    target_status: Status = strawberry.field(description="editing to check it out, normal to check it in.")
    fk_tables: list[str] = strawberry.field(
        default_factory=list, description="The tables to lock: those that the foreign keys lead to."
    )
    fk_current_status: list[Status] = strawberry.field(
        default_factory=list, description="Their expected statuses, in the same order."
    )
    fk_target_status: list[Status] = strawberry.field(
        default_factory=list, description="The statuses to change them to, in the same order."
    )
    token: str | None = strawberry.field(
        default=None, description="For a check-in: the check-out's token; without it, the editor's latest."
    )
    ttl: float | None = strawberry.field(default=None, description=_TTL)
    shared_references: bool = strawberry.field(default=False, description=_SHARED)
    require_token: bool = strawberry.field(default=False, description=_REQUIRE_TOKEN)
    note: str = strawberry.field(default="", description=_NOTE)
