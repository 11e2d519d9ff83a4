"""Entity tags: made of primary key and version, and read from headers (RFC 9110, section 8.8.3)."""

from __future__ import annotations

import re
from urllib.parse import quote

from django.db import models

from django_lockstep.http.errors import MalformedPrecondition
from django_lockstep.locking.versions import seen_version

__all__ = ["ANY", "etag", "parse_tags", "same_strong", "same_weak"]

ANY = ("*",)
"""What ``*`` in a header stands for: whatever is there."""

_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
# Possessive, so that no header makes the match slow.
_TAGS = re.compile(rf"[ \t]*+(?:{_TAG})?+(?:[ \t]*+,[ \t]*+(?:{_TAG})?+)*+[ \t]*+")


def etag(obj: models.Model) -> str:
    """Return the strong entity tag of a versioned object: its primary key and the version it was read with.

    Equal tags mean the same row in the same version. A tag is of the data, not of one rendering: where one URL has
    several (languages, formats), their tags have to differ, too, or ``Vary`` has to say so. Raises ``ValueError`` for
    an object that was never saved or was read without its version.
    """
    return f'"{quote(str(obj.pk), safe="")}.{seen_version(obj)}"'


def parse_tags(header: str) -> tuple[str, ...]:
    """Return the tags of an ``If-Match`` or ``If-None-Match`` header; `ANY` for ``*``.

    Raises `MalformedPrecondition` for everything that is no such list, unquoted tags among them: Django's own helpers
    drop those, and let the write through.
    """
    if header.strip(" \t") == "*":
        return ANY
    tags = tuple(re.findall(_TAG, header)) if _TAGS.fullmatch(header) else ()
    if not tags:
        raise MalformedPrecondition(f'{header!r} is no list of entity tags such as "42.7", quotes included, and not *')
    return tags


def same_strong(current: str, tags: tuple[str, ...]) -> bool:
    """Whether one of the tags is this one, as ``If-Match`` compares: weak tags never are."""
    return tags == ANY or current in tags


def same_weak(current: str, tags: tuple[str, ...]) -> bool:
    """Whether one of the tags is this one, as ``If-None-Match`` compares: weak or not."""
    return tags == ANY or current in {tag.removeprefix("W/") for tag in tags}
