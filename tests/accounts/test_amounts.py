"""Amounts are checked before any SQL; each refusal names the value and the rule."""

import sys
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.amounts import parse_amount, parse_signed_amount
from accounts.errors import InvalidAmount

KIND = "a Decimal, an int or a decimal string"


@pytest.mark.parametrize(
    ("given_as", "amount"),
    [
        (5, "5.00"),
        (Decimal("0.01"), "0.01"),
        (Decimal("1E+2"), "100.00"),
        ("12.5", "12.50"),
        ("+7", "7.00"),
        ("7.", "7.00"),
        ("0007.10", "7.10"),
        ("99999999999999999.99", "99999999999999999.99"),
    ],
)
def test_amounts_become_decimals_with_two_places(given_as: Any, amount: str) -> None:
    assert str(parse_amount(given_as)) == amount


BAD = [
    (0, "greater than zero"),
    (-1, "greater than zero"),
    (Decimal("-0"), "greater than zero"),
    (Decimal("NaN"), "finite"),
    (Decimal("Infinity"), "finite"),
    ("NaN", KIND),
    (Decimal("0.001"), "at most 2 decimal places"),
    (Decimal("1E-1000000"), "at most 2 decimal places"),
    (10.5, KIND),
    (True, KIND),
    (None, KIND),
    ("", KIND),
    (" 10", KIND),
    ("10\n", KIND),
    ("1_000", KIND),
    ("1e3", KIND),
    ("٣", KIND),
    (b"10", KIND),
    ("100000000000000000.00", "at most 17 digits before the point"),
    (10**10000, "at most 17 digits before the point"),
    (Decimal("1E+999999"), "at most 17 digits before the point"),
    ("9" * 5000, "at most 17 digits before the point"),
]


@pytest.mark.parametrize(("value", "rule"), BAD, ids=range(len(BAD)))
def test_other_values_are_refused_with_the_rule_they_break(value: Any, rule: str) -> None:
    with pytest.raises(InvalidAmount, match=rule) as caught:
        parse_amount(value)
    assert caught.value.value is value
    assert rule in caught.value.rule
    assert len(str(caught.value)) < 200


def test_the_message_names_the_value() -> None:
    with pytest.raises(InvalidAmount) as caught:
        parse_amount(Decimal("0.001"))
    assert str(caught.value) == "Invalid amount Decimal('0.001'): an amount has at most 2 decimal places"


def test_a_value_too_long_to_print_is_still_named() -> None:
    assert sys.get_int_max_str_digits() < 10000
    with pytest.raises(InvalidAmount, match="<int too long to print>"):
        parse_amount(10**10000)


@given(st.decimals(min_value="0.01", max_value="99999999999999999.99", places=2))
def test_every_amount_that_fits_is_kept_exactly(amount: Decimal) -> None:
    assert parse_amount(amount) == parse_amount(f"{amount:f}") == amount


@given(st.one_of(st.text(), st.floats(), st.integers(), st.decimals(), st.binary(), st.booleans()))
def test_nothing_but_a_good_amount_or_a_clear_refusal(value: Any) -> None:
    try:
        amount = parse_amount(value)
    except InvalidAmount:
        return
    assert amount > 0
    assert amount.as_tuple().exponent == -2


# Signed.


@pytest.mark.parametrize(
    ("given_as", "amount"), [(-5, "-5.00"), ("-0.5", "-0.50"), ("+7", "7.00"), (Decimal(1), "1.00")]
)
def test_signed_amounts_may_be_below_zero(given_as: Any, amount: str) -> None:
    assert str(parse_signed_amount(given_as)) == amount


@pytest.mark.parametrize(
    ("value", "rule"),
    [(0, "must not be zero"), ("-0.00", "must not be zero"), ("-0.001", "2 decimal"), (-(10**17), "17 digits")],
)
def test_what_no_signed_amount_can_be(value: Any, rule: str) -> None:
    with pytest.raises(InvalidAmount, match=rule):
        parse_signed_amount(value)
