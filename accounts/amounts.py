"""Amounts of money as callers give them, checked before any SQL."""

import re
from decimal import Decimal

from accounts.errors import InvalidAmount

__all__ = ["MAX_DIGITS", "PLACES", "TOO_LARGE", "parse_amount"]

MAX_DIGITS = 19
"""Digits of a balance, its decimal places included."""
PLACES = 2
"""Decimal places of a balance and of an amount."""

TOO_LARGE = Decimal(10) ** (MAX_DIGITS - PLACES)
"""The least balance and amount that no longer fit."""

# Decimal() itself would also read "1_000", " 1 ", "NaN" and digits of other scripts.
_DECIMAL_STRING = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
_SHOWN = 60


def parse_amount(value: object) -> Decimal:
    """Return the amount as a Decimal with two places.

    Accepts a Decimal, an int or a decimal string such as ``"12.50"``. Raises `InvalidAmount`, naming the value and the
    rule, for anything else, and unless it is finite, greater than zero, with at most two places and seventeen digits
    before the point.
    """
    amount = _as_decimal(value)
    if not amount.is_finite():
        raise _refused(value, "an amount must be finite")
    if amount <= 0:
        raise _refused(value, "an amount must be greater than zero")
    if int(amount.as_tuple().exponent) < -PLACES:
        raise _refused(value, f"an amount has at most {PLACES} decimal places")
    if amount >= TOO_LARGE:
        raise _refused(value, f"an amount has at most {MAX_DIGITS - PLACES} digits before the point")
    return amount.quantize(Decimal(1).scaleb(-PLACES))


def _as_decimal(value: object) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if isinstance(value, str) and _DECIMAL_STRING.fullmatch(value):
        return Decimal(value)
    raise _refused(value, "an amount is a Decimal, an int or a decimal string such as '12.50'")


def _refused(value: object, rule: str) -> InvalidAmount:
    return InvalidAmount(f"Invalid amount {_shown(value)}: {rule}", value=value, rule=rule)


def _shown(value: object) -> str:
    """Return the value for a message, also where repr() itself would refuse or be endless."""
    try:
        text = repr(value)
    except ValueError:  # an int beyond sys.get_int_max_str_digits()
        return f"<{type(value).__name__} too long to print>"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
