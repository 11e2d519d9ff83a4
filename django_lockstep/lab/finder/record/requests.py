"""Interception of every request that a test has handled: by test clients, by a live server, by a WSGI client."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from unittest import mock

from django.core.handlers.base import BaseHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest
from django.test.client import AsyncClientHandler, ClientHandler, FakePayload

__all__ = [
    "FORCED_USER",
    "CallNext",
    "buffer_body",
    "current_request",
    "intercept",
    "intercept_async",
]

CallNext = Callable[[dict[str, Any]], Any]
"""Handles an environ as the handler would have done, and returns its response."""

FORCED_USER = "django_lockstep.user"
"""In an environ, the user that Django REST framework is to take the request for authenticated as."""
_requests: ContextVar[list[HttpRequest] | None] = ContextVar("_requests", default=None)


@contextmanager
def intercept(on_request: Callable[[BaseHandler, dict[str, Any], CallNext], Any]) -> Iterator[None]:
    """Have ``on_request(handler, environ, call_next)`` answer all requests of the process.

    The classes are changed, because test clients make a handler of their own each; they are put back at the end.
    """

    def of_client(handler: ClientHandler, environ: dict[str, Any]) -> Any:
        with _noting():
            return on_request(handler, environ, lambda changed: client(handler, changed))

    def of_wsgi(handler: WSGIHandler, environ: dict[str, Any], start_response: Any) -> Any:
        begun: list[tuple[Any, ...]] = []

        def handle(changed: dict[str, Any]) -> Any:
            return wsgi(handler, changed, lambda *arguments: begun.append(arguments))

        with _noting():
            response = on_request(handler, environ, handle)
        # A server takes one response, however often the request was answered.
        start_response(*begun[-1])
        return response

    def noted(handler: BaseHandler, request: HttpRequest) -> Any:
        if (requests := _requests.get()) is not None:
            requests.append(request)
        if FORCED_USER in request.META:
            # As its force_authenticate() does, which has set another user by now.
            request._force_auth_user = request.META[FORCED_USER]  # type: ignore[attr-defined]
        return get_response(handler, request)

    client: Any = ClientHandler.__call__
    wsgi: Any = WSGIHandler.__call__
    get_response: Any = BaseHandler.get_response
    with (
        mock.patch.object(ClientHandler, "__call__", of_client),
        mock.patch.object(WSGIHandler, "__call__", of_wsgi),
        mock.patch.object(BaseHandler, "get_response", noted),
    ):
        yield


@contextmanager
def intercept_async(on_request: Callable[[bytes, Callable[[], Awaitable[Any]]], Awaitable[Any]]) -> Iterator[None]:
    """Have ``await on_request(body, call_next)`` answer the requests of asynchronous test clients."""

    async def of_client(handler: AsyncClientHandler, scope: dict[str, Any]) -> Any:
        # It can be read once: the handler gets a stream of its own.
        body: bytes = scope["_body_file"].read() if "_body_file" in scope else b""
        with _noting():
            return await on_request(body, lambda: client(handler, {**scope, "_body_file": FakePayload(body)}))

    async def noted(handler: BaseHandler, request: HttpRequest) -> Any:
        if (requests := _requests.get()) is not None:
            requests.append(request)
        return await get_response(handler, request)

    client: Any = AsyncClientHandler.__call__
    get_response: Any = BaseHandler.get_response_async
    with (
        mock.patch.object(AsyncClientHandler, "__call__", of_client),
        mock.patch.object(BaseHandler, "get_response_async", noted),
    ):
        yield


@contextmanager
def _noting() -> Iterator[None]:
    """Note the requests that handlers make meanwhile."""
    token = _requests.set([])
    try:
        yield
    finally:
        _requests.reset(token)


def current_request() -> HttpRequest | None:
    """Return the request that the handler made of the environ, while ``on_request`` runs; None before it is made."""
    requests = _requests.get()
    return requests[-1] if requests else None


def buffer_body(environ: dict[str, Any]) -> bytes:
    """Return the request's body, and leave it in the environ to be read again."""
    try:
        length = int(environ.get("CONTENT_LENGTH") or 0)
    except ValueError:  # Django takes it for 0 too
        length = 0
    body: bytes = environ["wsgi.input"].read(length) if length > 0 else b""
    # Without a body the stream stays as it is: a test may have put something of its own there.
    if body:
        environ["wsgi.input"] = io.BytesIO(body)
    return body
