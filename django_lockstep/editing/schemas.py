"""Requests and refusals of the HTTP API; it answers with `EditResult`."""

from dataclasses import MISSING, fields
from datetime import datetime
from typing import Annotated, Any, get_type_hints

from ninja import Field, Schema
from pydantic import ConfigDict, create_model

from django_lockstep.editing.ninja_api import ProblemOut
from django_lockstep.editing.results import EditResult, Hold

Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]


LockedOut: Any = create_model(
    "LockedOut",
    __base__=ProblemOut,
    __doc__="Refused: the result, and in ``holders`` the check-outs in the way.",
    holders=(list[Hold], ...),
    **{  # type: ignore[call-overload]
        member.name: (
            get_type_hints(EditResult)[member.name],
            ... if member.default is MISSING else member.default,
        )
        for member in fields(EditResult)
    },
)


class LostOut(ProblemOut):
    """The check-out has ended, or a concurrent request won."""

    how: str = ""
    by: str = ""
    at: datetime | None = None
    result: EditResult | None = None


class _In(Schema):
    """A client's request; unknown members are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class CheckOutIn(_In):
    """Options of a check-out."""

    ttl: float | None = Field(None, gt=0, description="Seconds; at most LOCKSTEP_EDIT_API_MAX_TTL.")
    related: str = Field("references", pattern="^(references|none)$")
    depth: int | None = Field(1, ge=0, description="At most LOCKSTEP_EDIT_API_MAX_DEPTH.")
    shared_references: bool = False
    require_token: bool = False
    note: Text = Field("", max_length=200)


class TokenIn(_In):
    """The token of a check-out; without it, the editor's latest."""

    token: Text | None = None


class ExtendIn(TokenIn):
    """Options of an extension, counted from now."""

    ttl: float | None = Field(None, gt=0, description="Seconds; at most LOCKSTEP_EDIT_API_MAX_TTL.")


class TransitionIn(_In):
    """The expected statuses and the target statuses."""

    table: Text
    record: Text | None = None
    current_status: Text
    target_status: Text
    fk_tables: list[Text] = []
    fk_current_status: list[Text] = []
    fk_target_status: list[Text] = []
    token: Text | None = None
    ttl: float | None = Field(None, gt=0, description="Seconds; at most LOCKSTEP_EDIT_API_MAX_TTL.")
    shared_references: bool = False
    require_token: bool = False
    note: Text = Field("", max_length=200)
