"""JSON as RFC 8259 defines it, of text that a database can store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from django_lockstep.locking.fields import is_storable


def parse_json(body: bytes | str) -> Any:
    """Return the value.

    Raises ``ValueError`` for invalid JSON, for NaN and Infinity, for an object with a member twice (RFC 8259 does not
    say which counts), for nesting that is too deep, and for strings with NUL, which PostgreSQL cannot store, or
    with half a surrogate pair, which cannot be encoded.
    """
    try:
        # Python's parser takes NaN and Infinity, which are not JSON, and the last member of a name.
        text = body.decode() if isinstance(body, bytes) else body
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_members)
        if refused := [text for text in _texts(value) if not is_storable(text)]:
            raise ValueError(f"{refused[0]!r} contains the character NUL or half of a surrogate pair")
    except RecursionError as error:
        raise ValueError(str(error)) from error
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _unique_members(members: list[tuple[str, Any]]) -> dict[str, Any]:
    names = Counter(name for name, _ in members)
    if twice := [name for name, times in names.items() if times > 1]:
        raise ValueError(f"the member {twice[0]!r} is there twice")
    return dict(members)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
