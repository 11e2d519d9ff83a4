"""Requests and refusals of the HTTP API; it answers with `EditResult`."""

from dataclasses import MISSING, fields
from datetime import datetime
from typing import Any, get_type_hints

from ninja import Field, Schema
from pydantic import ConfigDict, create_model

from django_lockstep.editing.ninja_api import ProblemOut
from django_lockstep.editing.results import CheckOutOptions, EditResult, Hold, StatusTransition


def _derive(name: str, kind: Any, base: type[Schema], **members: Any) -> Any:
    """Return the schema of a dataclass, with the descriptions of its members."""
    hints = get_type_hints(kind)
    for member in fields(kind):
        default = ... if member.default is MISSING else member.default
        members[member.name] = hints[member.name], Field(default, **member.metadata)
    return create_model(name, __base__=base, __doc__=kind.__doc__, **members)


class LostOut(ProblemOut):
    """The check-out has ended, or a concurrent request won."""

    how: str = ""
    by: str = ""
    at: datetime | None = None
    result: EditResult | None = None


LockedOut = _derive(
    "LockedOut", EditResult, ProblemOut, holders=(list[Hold], Field(description="The check-outs in the way."))
)


class _In(Schema):
    """A client's request; unknown members are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TokenIn(_In):
    """The token of a check-out; without it, the editor's latest."""

    token: str | None = None


class ExtendIn(TokenIn):
    """Options of an extension, counted from now."""

    ttl: float | None = Field(None, gt=0, description="Seconds; at most LOCKSTEP_EDIT_API_MAX_TTL.")


CheckOutIn = _derive("CheckOutIn", CheckOutOptions, _In)
TransitionIn = _derive("TransitionIn", StatusTransition, _In)
