"""Request and response bodies. Money is a string, because most clients parse JSON numbers as floats."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

from ninja import Schema
from pydantic import ConfigDict, Field

from accounts.amounts import MAX_DIGITS, PLACES

__all__ = ["AccountIn", "AccountOut", "ChangeIn", "EntryOut", "TransferIn", "TransferOut"]

# Not \d, which matches digits of all scripts. Without leading zeros a pattern can require an amount above zero.
_POINT = rf"(?:\.[0-9]{{1,{PLACES}}})?"
_WHOLE = rf"[1-9][0-9]{{0,{MAX_DIGITS - PLACES - 1}}}"
_CENTS = r"0\.(?:0[1-9]|[1-9][0-9]?)"
Amount = Annotated[str, Field(pattern=rf"^(?:{_WHOLE}{_POINT}|{_CENTS})$", examples=["12.50"])]
Limit = Annotated[str, Field(pattern=rf"^(?:0|{_WHOLE}){_POINT}$", examples=["50.00"])]
KeyText = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00]*$")]


class _BodyIn(Schema):
    """A request body; unknown fields are refused, so that a misspelled one is not taken for a missing one."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ChangeIn(_BodyIn):
    """A deposit or a withdrawal."""

    amount: Amount


class TransferIn(ChangeIn):
    """A transfer."""

    source: KeyText
    target: KeyText


class AccountIn(_BodyIn):
    """The fields of an account that staff may change."""

    overdraft_limit: Limit


class _Keyed(Schema):
    id: str

    @staticmethod
    def resolve_id(row: Any) -> str:
        return str(row.pk)


class AccountOut(_Keyed):
    """An account, after an operation as that left it; null for values that the client may not see."""

    balance: Decimal | None
    overdraft_limit: Decimal | None
    version: int


class TransferOut(Schema):
    """Both accounts after a transfer; the target's balance is not shown to the sender."""

    source: AccountOut
    target: str


class EntryOut(_Keyed):
    """One change of an account."""

    amount: Decimal
    balance_after: Decimal
    version_after: int
    transfer: UUID | None
    created_at: datetime
