"""Fingerprints of values: whether two are equal can be seen, what they are cannot.

A value looks different as a parameter in Python, in the server's text and in a form, so that it is brought into one
form first.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

from psycopg.types.json import Json, Jsonb

NULL = "NULL"
_OPEN = frozenset({NULL, "True", "False"})
"""What is no secret, and is compared with literals in SQL."""
_MOST_ELEMENTS = 200
_MOST_REMEMBERED = 16384
_FIRST_OWN_TYPE = 16384
"""The first OID that is not PostgreSQL's own: enumerations and types of extensions, whose text is taken."""


class Fingerprints:
    """Makes the fingerprints of one recording: 12 hexadecimal digits, keyed, so that nobody can try values out.

    Without a key, values stay as they are, behind an equals sign.
    """

    def __init__(self, key: bytes | None) -> None:
        self._key = key
        # A test reads the same few rows again and again.
        self.of_column = functools.lru_cache(_MOST_REMEMBERED)(self._of_column)

    def of(self, value: object) -> str:
        """Return the fingerprint of a parameter; of a list, those of its elements."""
        if isinstance(value, list | tuple | set | frozenset):
            return f"[{'|'.join(self.of(element) for element in list(value)[:_MOST_ELEMENTS])}]"
        return self._of_text(_canonical(value))

    def _of_column(self, value: bytes | None, type_oid: int) -> str:
        """Return the fingerprint of a value that the server sent as text."""
        if value is None:
            return NULL
        text = value.decode(errors="replace")
        try:
            return self._of_text(_READERS.get(type_oid, str)(text))
        except (ValueError, InvalidOperation):  # infinity, a year before Christ
            return self._of_text(text)

    def of_input(self, value: object) -> Iterable[str]:
        """Return the fingerprints that a value may have which came as text, or out of JSON."""
        if not isinstance(value, str):
            return {self.of(value)}
        return {self._of_text(text) for text in {value, value.strip(), *_read_as(value.strip())}}

    def _of_text(self, text: str) -> str:
        if text in _OPEN:
            return text
        if self._key is None:
            return f"={text}"
        # 48 bits: of ten thousand values, two look the same by chance in one of five million recordings.
        return hashlib.blake2b(text.encode(errors="replace"), digest_size=6, key=self._key).hexdigest()


def _canonical(value: object) -> str:
    """Return the text that equal values share, in Python and in the server's answers."""
    if value is None:
        return NULL
    if isinstance(value, int | bool):
        return str(value) if isinstance(value, bool) else str(int(value))  # the driver's integers print their class
    if isinstance(value, float | Decimal):
        return _number(str(value))
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, Json | Jsonb):
        return _json(value.obj)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return str(value)


def _number(text: str) -> str:
    number = Decimal(text)
    # Adding 0 makes 0 of a negative zero, which the server's numeric does not have.
    return format(number.normalize() + 0, "f") if number.is_finite() else str(number)


def _moment(value: datetime) -> str:
    with suppress(OverflowError):  # the first and the last day
        return str(value.astimezone(UTC) if value.tzinfo else value)
    return str(value)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


_READERS: dict[int, Callable[[str], str]] = {
    16: lambda text: str(text == "t"),
    17: lambda text: text.removeprefix("\\x"),
    **dict.fromkeys((114, 3802), lambda text: _json(json.loads(text))),
    **dict.fromkeys((700, 701, 1700), _number),
    1083: lambda text: str(time.fromisoformat(text)),
    **dict.fromkeys((1114, 1184), lambda text: _moment(datetime.fromisoformat(text))),
}
"""How the server writes values, by the type's OID, which is the same in every PostgreSQL."""
_AS_THEY_ARE = frozenset({18, 19, 20, 21, 23, 25, 26, 1042, 1043, 1082, 2950})
"""Characters, integers, dates and UUIDs."""


def comparable(type_oid: int) -> bool:
    """Whether the server's text of the type can be compared with a parameter: not of arrays, ranges or intervals."""
    return type_oid in _READERS or type_oid in _AS_THEY_ARE or type_oid >= _FIRST_OWN_TYPE


def _read_as(text: str) -> Iterable[str]:
    """Yield what a form may make of a text."""
    with suppress(InvalidOperation):
        yield _number(text)
    with suppress(ValueError):
        yield _moment(datetime.fromisoformat(text))
    if text.lower() in {"on", "true", "false"}:
        yield str(text.lower() != "false")
