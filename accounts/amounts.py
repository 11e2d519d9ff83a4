"""Amounts of money as callers give them, checked before any SQL, and the balance that one leads to."""

import re
from collections.abc import Callable
from decimal import Decimal

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounts.errors import InsufficientFunds, InvalidAmount

MAX_DIGITS = 19
"""Digits of a balance, including its decimal places."""
PLACES = 2
"""Decimal places of a balance and of an amount."""

TOO_LARGE = Decimal(10) ** (MAX_DIGITS - PLACES)
"""The smallest balance or amount that no longer fits."""

QUANTUM = Decimal(1).scaleb(-PLACES)
"""The smallest amount; what money is quantized to."""

# Decimal() itself would also read "1_000", " 1 ", "NaN" and digits of other scripts.
_DECIMAL_STRING = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
_MAX_SHOWN = 60


def parse_amount(value: object) -> Decimal:
    """Return the amount as a Decimal with two places.

    Accepts a Decimal, an int or a decimal string such as ``"12.50"``. Raises `InvalidAmount`, naming the value and the
    rule, for anything else, and unless it is finite, greater than zero, with at most two places and seventeen digits
    before the point.
    """
    return _parse(value, lambda amount: amount > 0, gettext_noop("an amount must be greater than zero"))


def parse_limit(value: object) -> Decimal:
    """Return the amount as `parse_amount` does; it may be zero."""
    return _parse(value, lambda amount: amount >= 0, gettext_noop("an amount must not be less than zero"))


def parse_signed_amount(value: object) -> Decimal:
    """Return the amount as `parse_amount` does; a withdrawal is negative, and zero is refused."""
    return _parse(value, bool, gettext_noop("an amount must not be zero"))


def changed_balance(balance: Decimal, amount: Decimal, *, overdraft_limit: Decimal, account: str) -> Decimal:
    """Return the balance plus the signed amount.

    Raises `InsufficientFunds`, which names the account, for a withdrawal below the overdraft limit, `InvalidAmount`
    above what a balance can hold.
    """
    changed = balance + amount
    if amount < 0 and changed < -overdraft_limit:
        text = _("%(account)s has %(balance)s and an overdraft limit of %(overdraft_limit)s: not enough for %(amount)s")
        values = {"balance": balance, "overdraft_limit": overdraft_limit, "amount": -amount}
        raise InsufficientFunds(text % {"account": account, **values}, **values)
    if changed >= TOO_LARGE:
        raise _invalid(
            amount, _("a balance has at most %(number)s digits before the point"), number=MAX_DIGITS - PLACES
        )
    return changed


def _parse(value: object, is_allowed: Callable[[Decimal], bool], rule: str) -> Decimal:
    amount = _to_decimal(value)
    if not amount.is_finite():
        raise _invalid(value, _("an amount must be finite"))
    if not is_allowed(amount):
        raise _invalid(value, _(rule))
    # More places are refused, not rounded: the caller would not know which amount was booked.
    if int(amount.as_tuple().exponent) < -PLACES:
        raise _invalid(value, _("an amount has at most %(number)s decimal places"), number=PLACES)
    if not -TOO_LARGE < amount < TOO_LARGE:
        digits = _("an amount has at most %(number)s digits before the point")
        raise _invalid(value, digits, number=MAX_DIGITS - PLACES)
    return amount.quantize(QUANTUM)


def _to_decimal(value: object) -> Decimal:
    if isinstance(value, Decimal):
        return value
    # A bool is an int to isinstance(); a float is refused, because it rarely is the amount that was meant.
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if isinstance(value, str) and _DECIMAL_STRING.fullmatch(value):
        return Decimal(value)
    raise _invalid(value, _("an amount is a Decimal, an int or a decimal string such as '12.50'"))


def _invalid(value: object, rule: str, **values: int) -> InvalidAmount:
    rule = rule % values if values else rule
    try:
        text = repr(value)
    except ValueError:  # an int beyond sys.get_int_max_str_digits()
        text = f"<{type(value).__name__} too long to print>"
    if len(text) > _MAX_SHOWN:
        text = f"{text[:_MAX_SHOWN]}..."
    message = _("Invalid amount %(value)s: %(rule)s") % {"value": text, "rule": rule}
    return InvalidAmount(message, value=value, rule=rule)
