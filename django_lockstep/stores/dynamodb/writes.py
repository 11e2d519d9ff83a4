"""Conditional writes as plain values, validated when they are made, and what became of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from django_lockstep.stores.dynamodb.values import LARGEST, Encoded, encode_attributes, valid_name
from django_lockstep.stores.terms import valid_key

RESERVED = ("pk", "version")
"""Names of attributes that the store itself writes."""
_MOST_WRITES = 100
"""Writes and guards of one transaction; DynamoDB's limit."""
_LONGEST_TOKEN = 36
_OWN_BYTES = 2048 + 128
"""Bytes of an item that its key and the reserved attributes may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An item as it was read."""

    key: str
    version: int
    """Grows by one with every write. It starts at random, so that a deleted item's versions never come back."""
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Put:
    """Write the whole item if its version is still ``version``, or with None if there is no such item."""

    key: str
    attributes: Mapping[str, object]
    version: int | None = None
    encoded: dict[str, Encoded] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        valid_key(self.key)
        if self.version is not None:
            _valid_version(self.version)
        object.__setattr__(self, "encoded", _valid_attributes(self.attributes))


@dataclass(frozen=True, slots=True)
class Update:
    """Write some attributes, and drop those in ``remove``, if the item's version is still ``version``."""

    key: str
    changes: Mapping[str, object]
    version: int
    remove: Sequence[str] = ()
    encoded: dict[str, Encoded] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        valid_key(self.key)
        _valid_version(self.version)
        object.__setattr__(self, "encoded", _valid_attributes(self.changes))
        for name in self.remove:
            _refuse_reserved(valid_name(name))
            if name in self.changes:
                raise ValueError(f"attribute {name!r} cannot be both changed and removed")


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the item if its version is still ``version``."""

    key: str
    version: int

    def __post_init__(self) -> None:
        valid_key(self.key)
        _valid_version(self.version)


Write = Put | Update | Delete


class Guard(Protocol):
    """What lets a transaction write only while a lease is held: a `LeaseHandle`."""

    key: str
    token: int
    using: str
    """The database's alias, or the store's name."""

    def guard(self) -> Mapping[str, Any] | None:
        """Guard the open transaction, or return the condition that guards it."""

    def refuse(self) -> Exception:
        """Mark the lease as lost, and return the error that says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a transaction; true if it was written."""

    versions: tuple[int | None, ...] = ()
    """The new version of each write in its order, None for deletes; empty if nothing was written."""
    refused: tuple[int, ...] = ()
    """The positions of writes whose condition did not hold."""

    def __bool__(self) -> bool:
        return not self.refused


def valid_transaction(writes: Sequence[Write], guards: Sequence[Guard], token: str | None) -> None:
    """Raise ``ValueError`` for what DynamoDB would not take as one transaction."""
    if not writes or len(writes) + len(guards) > _MOST_WRITES:
        raise ValueError(f"a transaction must have 1 to {_MOST_WRITES} writes and guards, not {len(writes)}")
    for place, keys in (("write", [write.key for write in writes]), ("guard", [guard.key for guard in guards])):
        if repeated := {key for key in keys if keys.count(key) > 1}:
            raise ValueError(f"a transaction must have one {place} for a key, not several for {sorted(repeated)}")
    if token is not None and not (isinstance(token, str) and 1 <= len(token) <= _LONGEST_TOKEN and token.isprintable()):
        raise ValueError(f"token must be a string of 1 to {_LONGEST_TOKEN} printable characters, not {token!r}")


def new_version(write: Write, token: str) -> int | None:
    """Return the version that the write gives its item, the same at every attempt with this token."""
    if isinstance(write, Delete):
        return None
    if write.version is not None:
        return write.version + 1
    return int.from_bytes(hashlib.sha256(f"{token}\0{write.key}".encode()).digest()[:6]) + 1


def _valid_version(version: int) -> None:
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ValueError(f"version must be a positive integer, not {version!r}")


def _valid_attributes(attributes: Mapping[str, object]) -> dict[str, Encoded]:
    encoded, size = encode_attributes(attributes)
    for name in encoded:
        _refuse_reserved(name)
    if size + _OWN_BYTES > LARGEST:
        raise ValueError(f"an item must not be larger than {LARGEST} bytes, not {size + _OWN_BYTES}")
    return encoded


def _refuse_reserved(name: str) -> None:
    if name in RESERVED:
        raise ValueError(f"attribute {name!r} is the store's own: use another name than {', '.join(RESERVED)}")
