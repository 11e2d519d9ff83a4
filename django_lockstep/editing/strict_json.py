"""JSON as RFC 8259 defines it, of text that a database can store."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from django_lockstep.stores.terms import valid_json


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
        valid_json(value)
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
