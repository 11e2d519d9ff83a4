"""Requests and responses of the HTTP API."""

from datetime import datetime
from typing import Annotated

from ninja import Field, Schema
from pydantic import ConfigDict

from django_lockstep.http.ninja_api import ProblemOut

__all__ = [
    "CheckOutIn",
    "ExtendIn",
    "HoldOut",
    "LockedOut",
    "LostOut",
    "ResultOut",
    "TableOut",
    "TokenIn",
    "TransitionIn",
]

Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class TableOut(Schema):
    """The status of one table or record."""

    table_name: str
    current_status: str
    record: str = ""


class HoldOut(Schema):
    """One check-out."""

    id: int
    editor: str
    since: datetime
    expires_at: datetime
    locked_by: str
    holds: list[TableOut]
    note: str = ""


class ResultOut(Schema):
    """The answer to every operation."""

    lock_result: bool
    current_status: str
    fk_current_status: list[TableOut]
    table: str
    record: str = ""
    holder: str | None = None
    locked_by: str | None = None
    since: datetime | None = None
    expires_at: datetime | None = None
    must_end: list[HoldOut] = []
    present: list[HoldOut] = []
    lost: str | None = None
    token: str | None = None


class LockedOut(ResultOut, ProblemOut):
    """Refused: ``holders`` lists the check-outs in the way."""

    holders: list[HoldOut]


class LostOut(ProblemOut):
    """The check-out has ended, or a concurrent request won."""

    how: str = ""
    by: str = ""
    at: datetime | None = None
    result: ResultOut | None = None


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
