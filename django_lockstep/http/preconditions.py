"""Conditional requests (RFC 9110, section 13): entity tags, the checks against an object, and the refusals.

The refusals are drawn in `django_lockstep.errors`; 428 is that of RFC 6585, section 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from django.db import models, router
from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_lockstep.errors import LockstepError, StaleVersionError, translated
from django_lockstep.locking.memory import seen_version


class PreconditionError(LockstepError):
    """A conditional request cannot be carried out.

    ``etag`` is the current tag, None without an object or where the client may not know it. Without a message the first
    line of the class's docstring is the message.
    """

    status = 400

    def __init__(self, message: str = "", *, etag: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").partition("\n")[0])
        self.etag = etag


class PreconditionRequired(PreconditionError):
    """Changing this needs the header If-Match with the ETag that was read."""

    status = 428


class PreconditionFailed(PreconditionError):
    """The object was changed since it was read."""

    status = 412


class MalformedPrecondition(PreconditionError):
    """A header of the request is not a list of entity tags."""


ANY = ("*",)
"""The value of ``*`` in a header: any existing object."""

_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
# Possessive quantifiers, so that a crafted header cannot cause catastrophic backtracking.
_TAGS = re.compile(rf"[ \t]*+(?:{_TAG})?+(?:[ \t]*+,[ \t]*+(?:{_TAG})?+)*+[ \t]*+")


def etag(obj: models.Model) -> str:
    """Return the strong entity tag of a versioned object: its primary key and the version it was read with.

    Equal tags mean the same row in the same version. A tag identifies the data, not one representation: where a URL has
    several (languages, formats), their tags must differ as well, or ``Vary`` must list the header. Raises
    ``ValueError`` for an object that was never saved or was read without its version.
    """
    # The key as well: another object in the same version must not match.
    return f'"{quote(str(obj.pk), safe="")}.{seen_version(obj)}"'


def parse_tags(header: str) -> tuple[str, ...]:
    """Return the tags of an ``If-Match`` or ``If-None-Match`` header; `ANY` for ``*``.

    Raises `MalformedPrecondition` for any other header, also for unquoted tags: Django's own helpers drop those and
    allow the write.
    """
    if header.strip(" \t") == "*":
        return ANY
    tags = tuple(re.findall(_TAG, header)) if _TAGS.fullmatch(header) else ()
    if not tags:
        raise MalformedPrecondition(_('%r must be * or a list of entity tags such as "42.7", quotes included') % header)
    return tags


def same_weak(current: str, tags: tuple[str, ...]) -> bool:
    """Whether one of the tags equals this one, compared as for ``If-None-Match``: weak or not."""
    return tags == ANY or current in {tag.removeprefix("W/") for tag in tags}


def check_preconditions(request: HttpRequest, obj: models.Model | None) -> None:
    """Check the request's ``If-Match`` and ``If-None-Match`` against the object (None if it does not exist).

    For unsafe requests. The headers are optional; `require_match` demands them. Raises `PreconditionFailed` with the
    current tag, and `MalformedPrecondition` for a header that is not a list of tags.
    """
    current = None if obj is None else etag(obj)
    # Both are parsed before either is compared: a malformed header is 400, whatever the other one says.
    match, none_match = _tags(request, "If-Match"), _tags(request, "If-None-Match")
    if match is not None and current is None:
        raise PreconditionFailed(_("There is no object that could match."))
    # Representations with the same weak tag are as good as equal: not enough to overwrite one (RFC 9110, 13.1.1).
    if match is not None and match != ANY and current not in match:
        weak = next((tag for tag in match if tag.startswith("W/")), None)
        hint = _("%s is a weak tag, which If-Match never matches; GZipMiddleware or a proxy may have weakened it")
        raise PreconditionFailed(hint % weak if weak else _("The object was changed since it was read."), etag=current)
    if none_match is not None and current is not None and same_weak(current, none_match):
        raise PreconditionFailed(_("The object already exists."), etag=current)


def _tags(request: HttpRequest, name: str) -> tuple[str, ...] | None:
    header = request.headers.get(name)
    return None if header is None else parse_tags(header)


def require_match(request: HttpRequest, obj: models.Model | None) -> None:
    """Check as `check_preconditions`, and require ``If-Match`` to change an existing object.

    Creating one requires ``If-None-Match: *``. The object keeps the version that the client named, so that saving it
    detects later changes. Raises `PreconditionRequired` without the header.
    """
    check_preconditions(request, obj)
    header = "If-Match" if obj is not None else "If-None-Match"
    if header not in request.headers:
        create = _("Creating an object needs the header If-None-Match: *")
        change = _("Changing this needs the header If-Match with the ETag that was read.")
        raise PreconditionRequired(create if obj is None else change)


def not_modified(request: HttpRequest, obj: models.Model) -> bool:
    """Whether the client already has this version, by ``If-None-Match``: the response is 304."""
    header = request.headers.get("If-None-Match")
    return header is not None and same_weak(etag(obj), parse_tags(header))


@contextmanager
def seen_elsewhere(obj: models.Model) -> Iterator[None]:
    """Raise `PreconditionFailed` if the block could not write the object because it was changed since the check.

    The UPDATE itself compares the version, so a change between check and write is detected. Conflicts of other objects
    pass unchanged.
    """
    try:
        yield
    except Exception as error:
        if not is_conflict_of(obj, error):
            raise
        raise changed_since(obj) from error


def is_conflict_of(obj: models.Model, error: Exception) -> bool:
    """Whether the error means that this object was changed or deleted since it was read."""
    conflict = translated(error)
    gone: Any = vars(type(obj))["DoesNotExist"]
    # By class and key: a conflict of another object must not be answered with this object's tag.
    return isinstance(error, gone) or (
        isinstance(conflict, StaleVersionError) and conflict.model is type(obj) and conflict.pk == obj.pk
    )


def changed_since(obj: models.Model) -> PreconditionFailed:
    """Return the refusal for such an error, with the tag of the object's row as it is now."""
    using = router.db_for_write(type(obj), instance=obj)
    now = type(obj)._base_manager.using(using).filter(pk=obj.pk).first()
    text = _("The object was changed since it was read.")
    return PreconditionFailed(text, etag=None if now is None else etag(now))
