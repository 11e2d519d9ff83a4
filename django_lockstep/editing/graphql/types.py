"""The types of the schema; those of answers are derived from `django_lockstep.editing.results`."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import strawberry

from django_lockstep.editing import results

__all__ = ["CheckOutOptions", "EditResult", "Hold", "Related", "Status", "TableStatus", "TransitionInput"]


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


def _derive(kind: type, *, make: Any = strawberry.type, name: str = "", **types: Any) -> Any:
    """Return the type of the schema with the members of a dataclass; objects of a result are its values."""
    hints = get_type_hints(kind) | _OTHER_TYPES | types
    namespace: dict[str, Any] = {
        member.name: strawberry.field(
            name=_OTHER_NAMES.get(member.name), default=member.default, description=member.metadata["description"]
        )
        for member in fields(kind)
    }
    namespace["__annotations__"] = {name: _in_schema(hints[name]) for name in namespace}
    return make(type(name or kind.__name__, (), namespace), description=kind.__doc__)


def _in_schema(hint: Any) -> Any:
    """Return a list of the derived type for ``tuple[Hold, ...]``, every other hint as it is."""
    return list[globals()[get_args(hint)[0].__name__]] if get_origin(hint) is tuple else hint  # type: ignore[misc]


if TYPE_CHECKING:
    from django_lockstep.editing.results import CheckOutOptions, EditResult, Hold, TableStatus
    from django_lockstep.editing.results import StatusTransition as TransitionInput
else:
    TableStatus = _derive(results.TableStatus)
    Hold = _derive(results.Hold)
    EditResult = _derive(results.EditResult)
    CheckOutOptions = _derive(results.CheckOutOptions, make=strawberry.input, related=Related)
    TransitionInput = _derive(
        results.StatusTransition,
        make=strawberry.input,
        name="TransitionInput",
        target_status=Status,
        fk_tables=list[str],
        fk_current_status=list[Status],
        fk_target_status=list[Status],
    )
