"""The types of the schema; those of answers are derived from `django_lockstep.editing.results`."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import strawberry

from django_lockstep.editing import results

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


_OTHER_TYPES = {"current_status": Status, "id": strawberry.ID}
_OTHER_NAMES = {"holder": "editor"}


def _derive(kind: type) -> Any:
    """Return the type of the schema with the members of a result, whose objects are its values."""
    hints = get_type_hints(kind)
    namespace: dict[str, Any] = {
        member.name: strawberry.field(name=_OTHER_NAMES.get(member.name), description=member.metadata["description"])
        for member in fields(kind)
    }
    namespace["__annotations__"] = {name: _OTHER_TYPES.get(name) or _in_schema(hints[name]) for name in namespace}
    return strawberry.type(type(kind.__name__, (), namespace), description=kind.__doc__)


def _in_schema(hint: Any) -> Any:
    """Return a list of the derived type for ``tuple[Hold, ...]``, every other hint as it is."""
    return list[globals()[get_args(hint)[0].__name__]] if get_origin(hint) is tuple else hint  # type: ignore[misc]


if TYPE_CHECKING:
    from django_lockstep.editing.results import EditResult, Hold, TableStatus
else:
    TableStatus = _derive(results.TableStatus)
    Hold = _derive(results.Hold)
    EditResult = _derive(results.EditResult)


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
