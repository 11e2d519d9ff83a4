"""The current writer: set by a context manager or the middleware, read by every checked write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.utils.functional import lazy

from django_lockstep.locking.decorating import block

TOKEN_HEADER = "X-Edit-Token"  # noqa: S105 - a name, no secret
"""The request header that carries the token of a check-out."""
TOKEN_FIELD = "_edit_token"  # noqa: S105 - a name, no secret
"""The form field that carries it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The writing user, and a check-out's token, if any."""

    editor: Any
    lazy_token: str | None

    @property
    def token(self) -> str:
        """The token; empty for a writer without one."""
        return str(self.lazy_token or "")

    @property
    def key(self) -> str:
        """The editor's primary key as text; empty for an anonymous user."""
        pk = getattr(self.editor, "pk", None)
        return "" if pk is None else str(pk)


_current: ContextVar[Writer | None] = ContextVar("lockstep_editing_writer", default=None)


def current_writer() -> Writer | None:
    """Return the writer of this context, None if none was named."""
    return _current.get()


@block
def writing(editor: object, *, token: str = "") -> Iterator[None]:
    """Name the writer for the block, in this thread or task.

    With a token only that check-out counts, while it lasts: the same user's other tabs are treated as other users.
    Without one, the editor may write everything they have checked out. Blocks may be nested; the innermost applies.
    """
    before = _current.set(Writer(editor=editor, lazy_token=token))
    try:
        yield
    finally:
        _current.reset(before)


class EditLockMiddleware:
    """Middleware: names the request's user as the writer, with the token of its header or form.

    Put it after the authentication middleware.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        # Lazy: reading POST here would consume the body before views can stream it.
        def token() -> str:
            return str(request.headers.get(TOKEN_HEADER) or request.POST.get(TOKEN_FIELD) or "")

        with writing(request.user, token=lazy(token, str)()):
            return self._get_response(request)
