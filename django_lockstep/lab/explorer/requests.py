"""Whole requests as actors: what a test client sends, each actor with a copy of the client of its own."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django.core.signals import request_finished, request_started
from django.db import close_old_connections

_client: ContextVar[Any] = ContextVar("client")
"""The client whose request is being handled; in asynchronous views, which change threads, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What a request returned. As an actor's result all but the body is compared, unless there is an invariant."""

    status: int
    """The HTTP status."""
    body: bytes
    """The content; of a streaming response all of it."""
    location: str = ""
    """Where a redirect leads."""
    error: str = ""
    """Classes of the errors that the view raised, where the response stands for them."""

    def __str__(self) -> str:
        return f"status {self.status}{self.location and f' to {self.location}'}{self.error and f' {self.error}'}"


def request_actor(method: Callable[..., Any], url: Any, *args: Any, **options: Any) -> Callable[[Any], Response]:
    """Return an actor that sends a request: ``request_actor(client.post, "/orders/", {"seat": 7})``.

    ``method`` is one of a client's methods, such as those of Django's test client and REST framework's, or any callable
    that returns something with a ``status_code`` and ``content``. Arguments that are functions are called with what
    ``set_up`` returned: ``request_actor(client.post, lambda seat: f"/seats/{seat.pk}/")``. A client is copied for each
    run with its cookies, so that actors share a login but nothing that a request changes. An exception of the view is
    the actor's error if the client raises it. CSRF is checked if the client checks it. The actor raises ``TypeError``
    for other results of the callable.
    """

    def send(fixture: Any) -> Response:
        def given(value: Any) -> Any:
            return value(fixture) if callable(value) else value

        named = {name: given(value) for name, value in options.items()}
        response = _of_copy(method)(given(url), *map(given, args), **named)
        if not hasattr(response, "status_code"):
            kind = type(response).__name__
            raise TypeError(f"A request must return a response with status_code and content, not {kind}")
        streaming = getattr(response, "streaming", False)
        body = b"".join(response.streaming_content) if streaming else response.content
        return Response(status=response.status_code, body=body, location=location_of(response))

    return send


def _of_copy(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same method of a copy of its client; a callable without one as it is."""
    original = getattr(method, "__self__", None)
    if not hasattr(original, "cookies"):
        return method
    client: Any = copy.copy(original)
    # A shallow copy would share the cookies, and a session renewed by one actor would log the other one out.
    client.cookies = copy.deepcopy(client.cookies)
    client.store_exc_info = _storing_own_errors(client)
    _client.set(client)
    return getattr(client, method.__name__)  # type: ignore[no-any-return]


def _storing_own_errors(client: Any) -> Callable[..., None]:
    """Return the receiver of views' errors: the signal is the process's, and other actors' views send it as well."""

    def store(**kwargs: Any) -> None:
        if _client.get(None) is client:
            client.exc_info = sys.exc_info()

    return store


def location_of(response: Any) -> str:
    """Return where the response redirects to; empty if it is no redirect."""
    headers = getattr(response, "headers", {})
    return str(headers.get("Location", "")) if 300 <= response.status_code < 400 else ""


@contextmanager
def keep_signal_receivers() -> Iterator[None]:
    """Connect `close_old_connections` again at the end if it was connected.

    The test client disconnects it around a part of each request, in which an actor may have been abandoned.
    """
    signals = [signal for signal in (request_started, request_finished) if signal.disconnect(close_old_connections)]

    def connect() -> None:
        for signal in signals:
            signal.connect(close_old_connections)

    connect()
    try:
        yield
    finally:
        connect()
