"""What the HTTP API takes and answers."""

from datetime import datetime

from ninja import Field, Schema

__all__ = [
    "CheckOutIn",
    "ExtendIn",
    "HoldOut",
    "LockedOut",
    "LostOut",
    "Problem",
    "ResultOut",
    "TableOut",
    "TokenIn",
    "TransitionIn",
]


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
    since: datetime | None = None
    expires_at: datetime | None = None
    must_end: list[HoldOut] = []
    present: list[HoldOut] = []
    lost: str | None = None
    token: str | None = None


class LockedOut(ResultOut):
    """Refused: ``holders`` says by whom."""

    detail: str
    holders: list[HoldOut]


class Problem(Schema):
    """Why nothing was changed."""

    detail: str


class LostOut(Problem):
    """The check-out has ended, or somebody was faster."""

    how: str = ""
    by: str = ""
    at: datetime | None = None
    result: ResultOut | None = None


class CheckOutIn(Schema):
    """How to check out."""

    ttl: float | None = Field(None, gt=0, description="Seconds; at most LOCKSTEP_EDIT_API_MAX_TTL.")
    related: str = Field("references", pattern="^(references|none)$")
    depth: int | None = Field(1, ge=0, description="At most LOCKSTEP_EDIT_API_MAX_DEPTH.")
    shared_references: bool = False
    require_token: bool = False
    note: str = Field("", max_length=200)


class TokenIn(Schema):
    """Which check-out: without a token, the editor's latest."""

    token: str | None = None


class ExtendIn(TokenIn):
    """How long from now."""

    ttl: float | None = Field(None, gt=0, description="Seconds; at most LOCKSTEP_EDIT_API_MAX_TTL.")


class TransitionIn(Schema):
    """What is expected, and what it is to become."""

    table: str
    record: str | None = None
    current_status: str
    target_status: str
    fk_tables: list[str] = []
    fk_current_status: list[str] = []
    fk_target_status: list[str] = []
    token: str | None = None
    ttl: float | None = Field(None, gt=0, description="Seconds; at most LOCKSTEP_EDIT_API_MAX_TTL.")
    shared_references: bool = False
    require_token: bool = False
    note: str = Field("", max_length=200)
