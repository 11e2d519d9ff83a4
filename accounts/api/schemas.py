"""What goes over the wire. Money is a string of digits, never a JSON number: those are floats to most clients."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

from ninja import Schema
from pydantic import ConfigDict, Field

from accounts.amounts import MAX_DIGITS, PLACES

__all__ = ["AccountIn", "AccountOut", "ChangeIn", "EntryOut", "TransferIn", "TransferOut"]

# Not \d, which takes the digits of all scripts. No leading zeros: then a pattern can tell what is above zero.
_POINT = rf"(?:\.[0-9]{{1,{PLACES}}})?"
_WHOLE = rf"[1-9][0-9]{{0,{MAX_DIGITS - PLACES - 1}}}"
_CENTS = r"0\.(?:0[1-9]|[1-9][0-9]?)"
Amount = Annotated[str, Field(pattern=rf"^(?:{_WHOLE}{_POINT}|{_CENTS})$", examples=["12.50"])]
Limit = Annotated[str, Field(pattern=rf"^(?:0|{_WHOLE}){_POINT}$", examples=["50.00"])]
Key = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00]*$")]


class _In(Schema):
    """What a client sends: nothing but what is named, so that no slip of the pen is taken for an omission."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ChangeIn(_In):
    """A deposit or a withdrawal."""

    amount: Amount


class TransferIn(ChangeIn):
    """A transfer."""

    source: Key
    target: Key


class AccountIn(_In):
    """What staff may set."""

    overdraft_limit: Limit


class _Keyed(Schema):
    id: str

    @staticmethod
    def resolve_id(row: Any) -> str:
        """Return the key as a string, whatever its type."""
        return str(row.pk)


class AccountOut(_Keyed):
    """An account as it is, or as the operation left it; null is what the client may not see."""

    balance: Decimal | None
    overdraft_limit: Decimal | None
    version: int


class TransferOut(Schema):
    """Both accounts after a transfer; the target's balance is not the sender's business."""

    source: AccountOut
    target: str


class EntryOut(_Keyed):
    """One change of an account."""

    amount: Decimal
    balance_after: Decimal
    version_after: int
    transfer: UUID | None
    created_at: datetime
