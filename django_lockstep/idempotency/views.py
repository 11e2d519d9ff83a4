"""The header ``Idempotency-Key``, for views of Django, Django REST framework and django-ninja."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from datetime import timedelta
from functools import partial, wraps
from typing import Any, TypeVar, cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.translation import gettext as _

from django_lockstep.http.problems import Problem, problem_of
from django_lockstep.idempotency.errors import KeyInUse, KeyReused
from django_lockstep.idempotency.operations import idempotent, is_name
from django_lockstep.locking.durations import Duration

V = TypeVar("V", bound=Callable[..., Any])

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


def idempotent_view(
    *,
    scope: Callable[..., str] | None = None,
    required: bool = False,
    within: Duration = timedelta(days=1),
    wait: Duration | None = None,
    using: str | None = None,
) -> Callable[[V], V]:
    """Let a view do its work once for each ``Idempotency-Key`` of a client; a decorator.

    A request with the same key gets the first one's response, with ``Idempotent-Replayed: true``. Answers 409 while the
    first one is at work, 422 for the key of another request (method, URL or body), 400 for a key that is too long, or
    that is ``required`` and missing, as problem details (RFC 9457). The response is kept in the view's transaction;
    one with a status from 400 is not kept, and what the view has written is rolled back, so that the key can be used
    again. Requests without the header, GET and HEAD pass.

    ``scope`` gets the view's arguments and returns whose keys these are, by default ``request.user``'s: give it where
    clients are known by other means. ``within``, ``wait`` and ``using`` are those of `idempotent`. For methods of
    classes, of Django REST framework too, use ``method_decorator``; with django-ninja it stands below the operation's.
    Raises ``TypeError`` for an async view, and for a response that cannot be kept.
    """

    def decorate(view: V) -> V:
        if iscoroutinefunction(view):
            raise TypeError(f"@idempotent_view() cannot decorate the async view {view.__qualname__}()")

        @wraps(view)
        def call(request: Any, *args: object, **kwargs: object) -> Any:
            key = request.headers.get("Idempotency-Key", "").strip().strip('"')
            if request.method in _SAFE or not (key or required):
                return view(request, *args, **kwargs)
            owner = (scope or _user)(request, *args, **kwargs)
            options = {"scope": owner, "within": within, "wait": wait, "using": using}
            return _answer(request, key, view=partial(view, request, *args, **kwargs), options=options)

        return cast("V", call)

    return decorate


def _answer(request: Any, key: str, *, view: Callable[[], Any], options: dict[str, Any]) -> Any:
    django_request: HttpRequest = getattr(request, "_request", request)  # not the framework's
    if not is_name(key):
        detail = _("The header Idempotency-Key must have 1 to 200 characters.")
        return Problem(status=400, detail=detail).to_response(django_request)
    content = _content(django_request)
    response: Any = None
    try:
        with idempotent(key, content=content, **options) as once:
            if once.replayed:
                return _restored(once.result)
            response = view()
            once.result = _kept(response)
    except _NotDone:
        return response
    except (KeyInUse, KeyReused) as error:
        return cast("Problem", problem_of(error)).to_response(django_request)
    if "data" in once.result:
        response.data = once.result["data"]  # with times as a repetition has them
    return response


class _NotDone(Exception):
    """Undoes what a view has written that has refused the request."""


def _user(request: Any, *args: object, **kwargs: object) -> str:
    user = getattr(request, "user", None)
    return "anonymous" if user is None or user.pk is None else f"user {user.pk}"


def _content(request: HttpRequest) -> list[Any]:
    """Return what makes two requests the same."""
    where = [request.method, request.get_full_path()]
    if request.method == "POST" and request.content_type == "multipart/form-data":
        # Its body has another boundary each time.
        files: list[Any] = [file for _name, of_name in request.FILES.lists() for file in of_name]
        digests = [(file.field_name, file.name, _digest(file.read()), file.seek(0)) for file in files]
        return [*where, sorted(request.POST.lists()), digests]
    return [*where, _digest(request.body)]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _kept(response: Any) -> dict[str, Any]:
    """Return the response as JSON. Raises `_NotDone` for a refusal."""
    if getattr(response, "status_code", 0) >= 400:
        raise _NotDone
    if isinstance(response, tuple):
        raise TypeError(f"a status and a value cannot be kept as the tuple {response!r}: return ninja.Status")
    if not isinstance(response, HttpResponseBase):  # django-ninja: a value, or a Status with one
        status, value = getattr(response, "status_code", None), getattr(response, "value", response)
        return {"status": status, "value": value.model_dump(mode="json") if hasattr(value, "model_dump") else value}
    if response.streaming:
        raise TypeError("a streaming response cannot be kept for an idempotency key")
    content = _content_of(response)  # first, because rendering may add headers
    cookies = [cookie.OutputString() for cookie in response.cookies.values()]
    return {"status": response.status_code, "headers": dict(response.headers), "cookies": cookies, **content}


def _content_of(response: Any) -> dict[str, Any]:
    if hasattr(response, "data") and not hasattr(response, "accepted_renderer"):  # inside of a REST framework view
        return {"data": response.data}
    if not getattr(response, "is_rendered", True):
        response.render()
    return {"body": base64.b64encode(response.content).decode()}


def _restored(kept: dict[str, Any]) -> Any:
    # Each framework's class is imported only where it made the first response.
    if "value" in kept and kept["status"] is not None:
        from ninja import Status

        return Status(kept["status"], kept["value"])
    if "value" in kept:
        return kept["value"]
    headers = {**kept["headers"], "Idempotent-Replayed": "true"}
    if "data" in kept:
        from rest_framework.response import Response

        response: Any = Response(kept["data"], status=kept["status"], headers=headers)
    else:
        response = HttpResponse(base64.b64decode(kept["body"]), status=kept["status"], headers=headers)
    for cookie in kept.get("cookies", ()):
        response.cookies.load(cookie)
    return response
