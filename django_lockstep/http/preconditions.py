"""The preconditions of a request against an object, without any framework's help (RFC 9110, section 13)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import models, router
from django.http import HttpRequest

from django_lockstep.errors import StaleVersionError, translated
from django_lockstep.http.errors import PreconditionFailed, PreconditionRequired
from django_lockstep.http.etags import etag, parse_tags, same_strong, same_weak

__all__ = ["check_preconditions", "is_conflict_of", "not_modified", "require_match", "seen_elsewhere"]


def check_preconditions(request: HttpRequest, obj: models.Model | None) -> None:
    """Check the request's ``If-Match`` and ``If-None-Match`` against the object; None where there is none.

    For requests that change something. What is asked for only when it is sent; `require_match` demands it. Raises
    `PreconditionFailed` with the current tag, and `MalformedPrecondition` for what is no list of tags.
    """
    current = None if obj is None else etag(obj)
    # Both are read before either is compared: whether a header can be read does not depend on the other one.
    match, none_match = _tags(request, "If-Match"), _tags(request, "If-None-Match")
    if match is not None:
        _require_strong_match(current, match)
    if none_match is not None and current is not None and same_weak(current, none_match):
        raise PreconditionFailed("It is there already.", etag=current)


def _tags(request: HttpRequest, name: str) -> tuple[str, ...] | None:
    header = request.headers.get(name)
    return None if header is None else parse_tags(header)


def require_match(request: HttpRequest, obj: models.Model | None) -> None:
    """Check as `check_preconditions`, and demand ``If-Match`` of whoever changes an object that is there.

    Whoever creates one says ``If-None-Match: *``. The object keeps the version that the client named, so that saving it
    notices what is changed from now on. Raises `PreconditionRequired` without the header.
    """
    check_preconditions(request, obj)
    wanted = "If-Match" if obj is not None else "If-None-Match"
    if wanted not in request.headers:
        hint = "" if obj is not None else "Creating needs the header If-None-Match: *"
        raise PreconditionRequired(hint, etag=None)


def not_modified(request: HttpRequest, obj: models.Model) -> bool:
    """Whether the client, by ``If-None-Match``, has this version of the object already: the answer is 304."""
    header = request.headers.get("If-None-Match")
    return header is not None and same_weak(etag(obj), parse_tags(header))


@contextmanager
def seen_elsewhere(obj: models.Model) -> Iterator[None]:
    """Raise `PreconditionFailed` where the block could not write the object, because it was changed since the check.

    The version stands in the UPDATE itself, so that nobody slips in between check and write. Conflicts of other
    objects pass as they are.
    """
    try:
        yield
    except Exception as error:
        if not is_conflict_of(obj, error):
            raise
        raise PreconditionFailed(etag=_current(obj)) from error


def is_conflict_of(obj: models.Model, error: Exception) -> bool:
    """Whether the error says that this object was changed or deleted since it was read."""
    found = translated(error)
    gone: Any = vars(type(obj))["DoesNotExist"]
    return isinstance(error, gone) or (
        isinstance(found, StaleVersionError) and found.model is type(obj) and found.pk == obj.pk
    )


def _current(obj: models.Model) -> str | None:
    using = router.db_for_write(type(obj), instance=obj)
    now = type(obj)._base_manager.using(using).filter(pk=obj.pk).first()
    return None if now is None else etag(now)


def _require_strong_match(current: str | None, tags: tuple[str, ...]) -> None:
    """Raise `PreconditionFailed` unless one of the tags is the current one; a weak tag never is."""
    if current is None:
        raise PreconditionFailed("There is nothing here that could match.")
    if same_strong(current, tags):
        return
    weak = next((tag for tag in tags if tag.startswith("W/")), None)
    hint = f"{weak} is weak, and If-Match compares strongly: something on the way (GZipMiddleware, a proxy) made it so"
    raise PreconditionFailed(hint if weak else "", etag=current)
