"""Responses to conflicts: problem details (RFC 9457) for programs, a page for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from django.db import Error, InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template import Context, Engine, TemplateDoesNotExist
from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from django_lockstep.errors import (
    STALE_ERRORS,
    ConcurrencyError,
    DeadlockDetected,
    LockNotAvailable,
    RetriesExhausted,
    SerializationFailure,
    is_after_commit,
    sqlstate_of,
    translated,
)
from django_lockstep.http.preconditions import PreconditionError

MEDIA_TYPE = "application/problem+json"
_PAGE = Path(__file__).with_name("409.html")
_BUSY = (LockNotAvailable, DeadlockDetected, SerializationFailure, RetriesExhausted)
_RETRY = {"Retry-After": "1"}
_CLASSES = ("08", "53", "57P")
"""Connection exceptions, insufficient resources (53300: too many connections), shutdown and crash recovery."""
_STATES = frozenset({"57014", "25P03", "25P04"})
"""``statement_timeout``, ``idle_in_transaction_session_timeout`` and ``transaction_timeout``."""
_MYSQL = frozenset({0, 1040, 1053, 1927, 1969, 2002, 2003, 2006, 2013, 3024})
"""The same for MySQL and MariaDB, whose drivers have no SQLSTATE; 0 is a closed connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem as RFC 9457 defines it."""

    status: int
    """HTTP status."""
    title: str = ""
    """The kind of problem; by default the status's phrase."""
    detail: str = ""
    """The reason in this case."""
    type: str = "about:blank"
    """URI of the kind."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the response, such as ETag and Retry-After."""
    members: Mapping[str, Any] = field(default_factory=dict)
    """Further members of the JSON object; those with the name of a member above are left out."""

    def to_dict(self) -> dict[str, Any]:
        title = self.title or HTTPStatus(self.status).phrase
        members = {"type": self.type, "title": title, "status": self.status, "detail": self.detail}
        more = {name: value for name, value in self.members.items() if name not in members}
        return {**{name: value for name, value in members.items() if value}, **more}

    def to_response(self, request: HttpRequest | None = None) -> HttpResponse:
        """Return the response: JSON, unless the request prefers a page."""
        types = ["application/json", MEDIA_TYPE, "text/html"]
        if request is not None and request.get_preferred_type(types) == "text/html":
            response = HttpResponse(_page(self, request), status=self.status)
        else:
            response = JsonResponse(self.to_dict(), status=self.status, content_type=MEDIA_TYPE)
        for name, value in self.headers.items():
            response.headers[name] = value
        # A cached conflict would be shown again after it is resolved.
        response.headers.setdefault("Cache-Control", "no-store")
        return response


def problem_of(error: Exception) -> Problem | None:
    """Return the problem for an error of concurrent work, also one of the driver; None for all others.

    A failed precondition has its own status; a conflict is 409; an error that a later attempt may cure (a lock not
    available, a deadlock, a serialization failure, exhausted retries) is 503 with ``Retry-After``, and so is a database
    that cannot be reached, has no connection left, or ended the statement because it took too long. An error class may
    name another status in ``http_status``. None also for what a callback of ``on_commit`` raised.
    """
    if is_after_commit(error):
        return None  # what the request asked for is done: no answer may say that nothing was saved
    if isinstance(error, PreconditionError):
        return refusal_of(error)
    error = translated(error)
    status = getattr(error, "http_status", None)
    if isinstance(status, int):
        return Problem(status=status, detail=str(error))
    # Before the general case: these are retryable, so 503 with Retry-After and not 409.
    if isinstance(error, _BUSY):
        return Problem(status=503, detail=_("Too many concurrent requests for this object. Try again."), headers=_RETRY)
    if isinstance(error, Error) and is_outage(error):
        # A connection lost at COMMIT leaves the outcome unknown, so the text must not claim that nothing was saved.
        return Problem(status=503, detail=_("The database did not answer. Try again."), headers=_RETRY)
    if isinstance(error, (ConcurrencyError, *STALE_ERRORS)):
        detail = _("The object was changed by another user in the meantime. Nothing was saved.")
        return Problem(status=409, detail=detail)
    return None


def refusal_of(error: PreconditionError) -> Problem:
    """Return the problem for a failed precondition, with the current tag where it is known."""
    return Problem(status=error.status, detail=str(error), headers={"ETag": error.etag} if error.etag else {})


def _page(problem: Problem, request: HttpRequest) -> str:
    """Return the project's page for this status, its 409.html, or the built-in page."""
    context = {"problem": problem.to_dict(), "status": problem.status}
    for name in (f"{problem.status}.html", "409.html"):
        try:
            return render_to_string(name, context, request=request)
        except TemplateDoesNotExist:
            continue
    engine = Engine(libraries={"i18n": "django.templatetags.i18n"})
    return engine.from_string(_PAGE.read_text("utf-8")).render(Context(context))


def is_outage(error: Error) -> bool:
    """Whether the database could not be reached, had no connection left, or exceeded a time limit.

    The driver raises errors without a code without a response from the server: a connection that failed or was lost, or
    an exhausted pool.
    """
    state = sqlstate_of(error)
    if state is not None:
        return state in _STATES or state.startswith(_CLASSES)
    if not isinstance(error, OperationalError | InterfaceError) or hasattr(error.__cause__, "sqlite_errorcode"):
        return False
    code = error.args[0] if error.args else None
    return code in _MYSQL if isinstance(code, int) else True
