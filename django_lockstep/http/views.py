"""A decorator for views that change an object only in the version that the client has seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError, IntegrityError, connections, models, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.translation import gettext as _

from django_lockstep.errors import ConcurrencyError, raise_if_committed
from django_lockstep.http.middleware import roll_back_request
from django_lockstep.http.preconditions import (
    PreconditionError,
    PreconditionFailed,
    changed_since,
    etag,
    is_conflict_of,
    not_modified,
    require_match,
)
from django_lockstep.http.problems import refusal_of

Lookup = Callable[..., models.Model | None]
V = TypeVar("V", bound=Callable[..., Any])

_CONFLICTS = (PreconditionError, ConcurrencyError, DatabaseError, ObjectDoesNotExist)
"""Errors that may be caused by a concurrent change."""


def require_if_match(lookup: Lookup) -> Callable[[V], V]:
    """Let a view change an object only if the client has seen its current version; a decorator.

    ``lookup`` gets the view's arguments and returns the versioned object; it returns None or raises ``Http404`` where
    there is none (or none that this user may see). The view finds the object as ``request.matched`` and saves that
    instance: the UPDATE itself then compares the version, so a change between check and write is refused too. Works for
    async views; for methods of classes use ``method_decorator``, for Django REST framework the mixin `IfMatchMixin`.

    Answers without calling the view: 428 without ``If-Match``, 412 for another version or a weak tag, with the current
    ``ETag``, 400 for a malformed tag; for GET and HEAD 304 if the client has this version. A PUT with ``If-None-Match:
    *`` reaches the view with None, to create the object (``save(force_insert=True)``) and assign it to
    ``request.matched``; 412 if it already exists or was created concurrently.

    Every successful response gets the new ``ETag``. Refusals are problem details (RFC 9457) and roll back writes under
    ``ATOMIC_REQUESTS``.
    """

    def decorate(view: V) -> V:
        if iscoroutinefunction(view):
            return cast("V", _around_coroutine(view, lookup))

        @wraps(view)
        def call(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
            exchange = _Exchange(request, lambda: lookup(request, *args, **kwargs))
            try:
                refused = exchange.before()
                if refused is not None:
                    return refused
                with exchange.savepoints():
                    response = view(request, *args, **kwargs)
                return exchange.after(response)
            except _CONFLICTS as error:
                return exchange.answer_to(error)

        return cast("V", call)

    return decorate


def _around_coroutine(
    view: Callable[..., Awaitable[HttpResponseBase]], lookup: Lookup
) -> Callable[..., Awaitable[HttpResponseBase]]:
    @wraps(view)
    async def call(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        exchange = _Exchange(request, lambda: lookup(request, *args, **kwargs))
        try:
            # No savepoints here: Django does not allow ATOMIC_REQUESTS with async views.
            refused = await sync_to_async(exchange.before)()
            return refused if refused is not None else exchange.after(await view(request, *args, **kwargs))
        except _CONFLICTS as error:
            return await sync_to_async(exchange.answer_to)(error)

    return call


class _Exchange:
    """The conditional handling of one request and its response."""

    def __init__(self, request: HttpRequest, lookup: Callable[[], models.Model | None]) -> None:
        self.request = request
        self._lookup = lookup

    def before(self) -> HttpResponseBase | None:
        """Find the object and check the preconditions; return a response if the view must not be called."""
        self._seen, absent = self._find()
        self.request.matched = self._seen  # type: ignore[attr-defined]
        if self.request.method in {"GET", "HEAD"}:
            if self._seen is not None and not_modified(self.request, self._seen):
                return HttpResponse(status=304, headers={"ETag": etag(self._seen)})
        elif self.request.method not in {"OPTIONS", "TRACE"}:
            # 404 without a condition; with one, RFC 9110 wants 412 for an object that does not exist.
            conditional = {"If-Match", "If-None-Match"} & self.request.headers.keys()
            if absent and not conditional and self.request.method != "PUT":
                raise absent
            require_match(self.request, self._seen)
        return None

    @contextmanager
    def savepoints(self) -> Iterator[None]:
        """Keep the transaction of ``ATOMIC_REQUESTS`` usable if the view's INSERT meets a concurrent one."""
        with ExitStack() as stack:
            for connection in connections.all(initialized_only=True):
                if self._seen is None and connection.in_atomic_block:
                    stack.enter_context(transaction.atomic(using=connection.alias))
            yield

    def after(self, response: HttpResponseBase) -> HttpResponseBase:
        """Add the tag of the object's current version."""
        obj: Any = getattr(self.request, "matched", None)
        exists = obj is not None and obj.pk is not None and not obj._state.adding
        if exists and 200 <= response.status_code < 300 and self.request.method != "DELETE":
            response.headers.setdefault("ETag", etag(obj))
        return response

    def answer_to(self, error: Exception) -> HttpResponseBase:
        """Return the refusal that the error means, or raise it."""
        raise_if_committed(error)
        seen, refusal = getattr(self, "_seen", None), error if isinstance(error, PreconditionError) else None
        if seen is not None and is_conflict_of(seen, error):
            refusal = changed_since(seen)
        # Only if the object now exists: any other IntegrityError is an error of the view.
        if seen is None and isinstance(error, IntegrityError) and (obj := self._find()[0]) is not None:
            refusal = PreconditionFailed(_("The object was created in the meantime."), etag=etag(obj))
        if refusal is None:
            raise error
        roll_back_request()
        return refusal_of(refusal).to_response(self.request)

    def _find(self) -> tuple[models.Model | None, Exception | None]:
        try:
            instance = self._lookup()
        except (Http404, ObjectDoesNotExist) as error:
            return None, error
        return instance, None if instance is not None else Http404()
