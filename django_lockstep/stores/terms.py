"""Claims, grants and holders as plain values, and the validation of their parts."""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

from django_lockstep.locking.durations import Duration, seconds
from django_lockstep.locking.fields import is_storable

KEPT = object()
"""A claim's marker for the data that the last holder left."""

LONGEST = 255
"""Characters of a key and of an owner's name."""
_HIGHEST_TOKEN = 2**63 - 1


class UniqueOwner(str):
    """A name that only one claim uses: a lease in this name certainly belongs to it."""

    __slots__ = ()


def new_owner() -> UniqueOwner:
    """Return ``host:process:thread:random``, never the same twice; also right in a process that was just forked."""
    unique = f":{os.getpid()}:{threading.get_native_id()}:{secrets.token_hex(4)}"
    return UniqueOwner(socket.gethostname()[:200] + unique)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A request for a lease; made by `claim`, which validates the values."""

    key: str
    owner: str
    ttl: float
    """Seconds until it expires, counted by the database."""
    at_least: float
    """Seconds from the acquire for which the lease stays taken even after a release."""
    data: str | None
    """The holder's data as JSON; None keeps the last holder's data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A granted claim."""

    token: int
    since: datetime
    """When it was acquired, by the database's clock."""
    requested_at: float
    """``time.monotonic()`` of this process before the request; the lease cannot have started earlier."""
    data: str
    """The lease's data as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The holder of a lease, as the database answered."""

    key: str
    owner: str
    token: int
    since: datetime
    """When it was acquired, by the database's clock."""
    remaining: float
    """Seconds until it expires; 0 where it has expired but is under guard in a transaction."""
    data: Any
    """The holder's data."""
    released: bool
    """Whether it was released and only ``at_least`` keeps it taken."""
    under_guard: bool = False
    """Whether a transaction guards the lease, even after it expired."""

    def __str__(self) -> str:
        since = f"{self.since:%Y-%m-%d %H:%M:%S %Z}".rstrip()
        if self.under_guard and not self.remaining:
            ended = "was released" if self.released else "has expired"
            return f"of {self.owner} {ended}, but an open transaction guards its token {self.token}"
        if self.released:
            return f"was acquired by {self.owner} at {since} and stays taken for another {self.remaining:.1f} s"
        return f"has been held by {self.owner} since {since} and expires in {self.remaining:.1f} s"


class ClaimOptions(TypedDict, total=False):
    """What may be said of a claim besides its key and its ttl; see ``Lease.objects.acquire``."""

    owner: str | None
    at_least: Duration | None
    data: object


def claim(
    key: str, ttl: Duration, *, owner: str | None = None, at_least: Duration | None = None, data: object = KEPT
) -> Claim:
    """Return the claim; raise ``TypeError`` or ``ValueError`` that names the value and the rule."""
    name = new_owner() if owner is None else owner
    return Claim(
        key=valid_key(key),
        owner=name if isinstance(name, UniqueOwner) else valid_text(name, name="owner"),
        ttl=seconds(ttl, name="ttl"),
        at_least=0.0 if at_least is None else seconds(at_least, name="at_least"),
        data=None if data is KEPT else valid_json(data),
    )


def valid_key(key: str) -> str:
    """Return a valid key: 1 to 255 characters that the database can store. It is never shortened or hashed."""
    return valid_text(key, name="key")


def valid_token(token: int) -> int:
    """Return a valid token: a positive integer that the database can store."""
    if isinstance(token, bool) or not isinstance(token, int) or not 1 <= token <= _HIGHEST_TOKEN:
        raise ValueError(f"token must be a positive integer of at most {_HIGHEST_TOKEN}, not {token!r}")
    return token


def valid_text(text: str, *, name: str, shortest: int = 1, longest: int = LONGEST) -> str:
    """Return a text of valid length that the database can store."""
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a string, not {text!r}")
    if not shortest <= len(text) <= longest:
        raise ValueError(f"{name} must have {shortest} to {longest} characters, not {len(text)}: {text[:40]!r}")
    if not is_storable(text):
        raise ValueError(f"{name} must not contain NUL or half of a surrogate pair: {text!r}")
    return text


def valid_json(data: object) -> str:
    """Return the data as JSON; raise ``TypeError`` or ``ValueError`` for what JSON or the database cannot hold."""
    if data is None:
        return "null"
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    # A backslash is written as two: without these pairs the escape of NUL is one.
    if not is_storable(text) or "\\u0000" in text.replace("\\\\", ""):
        raise ValueError(f"data must not contain NUL or half of a surrogate pair: {data!r}")
    return text
