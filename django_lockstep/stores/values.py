"""Values of items in DynamoDB's typed form, which both stores write: ``{"N": "12.5"}``.

Numbers are Decimals of up to 38 digits and come back as such, also integers. Money is never a float.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation, Overflow, Subnormal
from typing import Any

__all__ = ["LARGEST", "Encoded", "decode", "encode", "encode_all", "size_of", "valid_name"]

Encoded = dict[str, Any]
"""A typed value: one pair of a type's letter and the value."""

LARGEST = 400 * 1024
"""Bytes of an item, its names and key included; DynamoDB's limit."""
_DEEPEST = 31
"""Lists and mappings in one another; DynamoDB counts what is in them as one more level."""
_DIGITS = Context(prec=38, Emin=-130, Emax=125, traps=[Inexact, InvalidOperation, Overflow, Subnormal])
_PLAIN = 38
"""Numbers with more places than this are written with an exponent."""


def encode(value: object, *, where: str = "value", depth: int = 0) -> Encoded:
    """Return the typed form; raise ``TypeError`` or ``ValueError`` that names the value for what cannot be stored."""
    if depth > _DEEPEST:
        raise ValueError(f"{where} must not be nested more than {_DEEPEST} levels deep")
    match value:
        case list() | tuple():
            return {"L": [encode(item, where=f"{where}[{n}]", depth=depth + 1) for n, item in enumerate(value)]}
        case Mapping():
            return {"M": encode_all(value, where=where, depth=depth + 1)}
    return _scalar(value, where)


def _scalar(value: object, where: str) -> Encoded:
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case str():
            return {"S": _valid_text(value, where)}
        case int() | Decimal():
            return {"N": _number(value, where)}
        case float():
            raise TypeError(f"{where} must not be a float, which is inexact: use Decimal({str(value)!r})")
    raise TypeError(f"{where} must be None, a bool, str, int, Decimal, list or dict, not {value!r}")


def encode_all(values: Mapping[str, object], *, where: str = "", depth: int = 0) -> dict[str, Encoded]:
    """Return the mapping with typed values."""
    prefix = f"{where}." if where else ""
    return {valid_name(name): encode(value, where=f"{prefix}{name}", depth=depth) for name, value in values.items()}


def valid_name(name: str) -> str:
    """Return a valid name of an attribute: 1 to 255 characters. DynamoDB's reserved words are good names too."""
    if not isinstance(name, str):
        raise TypeError(f"an attribute's name must be a string, not {name!r}")
    if not 1 <= len(name) <= 255:
        raise ValueError(f"an attribute's name must have 1 to 255 characters, not {len(name)}: {name[:40]!r}")
    return _valid_text(name, "an attribute's name")


def _valid_text(text: str, where: str) -> str:
    # PostgreSQL stores no NUL, and neither store stores half of a surrogate pair.
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{where} must not contain NUL or half of a surrogate pair: {text[:40]!r}")
    return text


def _number(value: int | Decimal, where: str) -> str:
    try:
        # Both stores must give back the same: DynamoDB drops trailing zeros, and so do we.
        number = _DIGITS.normalize(_DIGITS.create_decimal(value))
    except DecimalException as error:
        raise ValueError(_unfit(value, where)) from error
    if not number.is_finite():
        raise ValueError(_unfit(value, where))
    if not number:
        return "0"
    return f"{number:f}" if abs(number.adjusted()) < _PLAIN else str(number)


def _unfit(value: object, where: str) -> str:
    return f"{where} must be a finite number of at most 38 digits between 1E-130 and 9.99E+125, not {value!r}"


def decode(encoded: Encoded) -> Any:
    """Return the value of a typed form; numbers become Decimals."""
    ((kind, value),) = encoded.items()
    match kind:
        case "NULL":
            return None
        case "N":
            return Decimal(value)
        case "L":
            return [decode(item) for item in value]
        case "M":
            return {name: decode(item) for name, item in value.items()}
    return value


def size_of(encoded: Mapping[str, Encoded]) -> int:
    """Return how many bytes the attributes take in an item, rather too many than too few."""
    return sum(len(name.encode()) + _size(value) for name, value in encoded.items())


def _size(encoded: Encoded) -> int:
    ((kind, value),) = encoded.items()
    match kind:
        case "M":
            return 3 + len(value) + size_of(value)
        case "L":
            return 3 + sum(1 + _size(item) for item in value)
        case "S" | "N":
            return len(value.encode())
    return 1
