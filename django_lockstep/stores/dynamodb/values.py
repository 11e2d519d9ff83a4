"""Values of items in DynamoDB's typed form, ``{"N": "12.5"}``, by boto3's serializer.

Numbers are Decimals of up to 38 digits and come back as such, also integers. Money is never a float.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from decimal import Decimal, DecimalException
from typing import Any

from django.core.exceptions import ImproperlyConfigured

NEEDS_BOTO3 = "A DynamoDB store needs boto3: install django-lockstep[dynamodb]"

Encoded = dict[str, Any]
"""A typed value: one pair of a type's letter and the value."""

LARGEST = 400 * 1024
"""Bytes of an item, its names and key included; DynamoDB's limit."""
_DEEPEST = 31
"""Lists and mappings in one another; DynamoDB counts what is in them as one more level."""


@functools.cache
def _serializer() -> Any:
    # Imported when the first value is encoded: boto3 is an extra.
    try:
        from boto3.dynamodb.types import TypeSerializer
    except ImportError as error:
        raise ImproperlyConfigured(NEEDS_BOTO3) from error
    return TypeSerializer()


def encode(value: object) -> Encoded:
    encoded: Encoded = _serializer().serialize(value)
    return encoded


def decode(encoded: Encoded) -> Any:
    """Return the value of a typed form; numbers become Decimals."""
    ((kind, value),) = encoded.items()
    match kind:
        case "NULL":
            return None
        case "N":
            # boto3's TypeDeserializer refuses what the server makes of 1E+38: a digit and 38 zeros.
            return Decimal(value)
        case "L":
            return [decode(item) for item in value]
        case "M":
            return {name: decode(item) for name, item in value.items()}
    return value


def encode_attributes(attributes: Mapping[str, object]) -> tuple[dict[str, Encoded], int]:
    """Return the attributes in typed form, and how many bytes they take in an item, rather too many than too few.

    Raises ``TypeError`` or ``ValueError`` that names the attribute for what DynamoDB cannot hold.
    """
    encoded, size = {}, 0
    for name, value in attributes.items():
        try:
            encoded[valid_name(name)] = encode(value)
            size += len(name.encode()) + _size(encoded[name])
        except DecimalException as error:
            raise ValueError(f"attribute {name!r}: numbers have at most 38 digits, not {value!r}") from error
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"attribute {name!r}: {error}") from error
    return encoded, size


def valid_name(name: str) -> str:
    """Return a valid name of an attribute: 1 to 255 characters. DynamoDB's reserved words are good names too."""
    if not isinstance(name, str) or not 1 <= len(name) <= 255:
        raise ValueError(f"an attribute's name must be a string of 1 to 255 characters, not {name!r:.40}")
    return name


def _size(encoded: Encoded, depth: int = 0) -> int:
    """Return the value's bytes; raise for what boto3 lets through and the server refuses."""
    if depth > _DEEPEST:
        raise ValueError(f"values must not be nested more than {_DEEPEST} levels deep")
    ((kind, value),) = encoded.items()
    match kind:
        case "M":
            return 3 + sum(1 + len(valid_name(name).encode()) + _size(item, depth + 1) for name, item in value.items())
        case "L":
            return 3 + sum(1 + _size(item, depth + 1) for item in value)
        case "S":
            return len(value.encode())
        case "N":
            number = Decimal(value)
            if not number.is_finite() or (number and not -130 <= number.adjusted() <= 125):
                raise ValueError(f"numbers must be finite and between 1E-130 and 9.99E+125, not {value}")
            return len(value)
        case "NULL" | "BOOL":
            return 1
    raise TypeError("values must be None, a bool, str, int, Decimal, list or dict, not bytes or a set")
