"""django-ninja's errors as problem details; an optional adapter."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.core.signals import got_request_exception
from django.db import DatabaseError, InterfaceError
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from django.utils.log import log_response
from django.utils.translation import gettext as _
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, AuthorizationError, HttpError, Throttled, ValidationError

from django_lockstep.errors import STALE_ERRORS, ConcurrencyError
from django_lockstep.http.middleware import roll_back_request
from django_lockstep.http.preconditions import PreconditionError
from django_lockstep.http.problems import Problem, problem_of

__all__ = ["answer_with_problems"]


def answer_with_problems(api: NinjaAPI) -> None:
    """Let the API answer errors of concurrent work, and the framework's own, with problem details (RFC 9457).

    Operations call `require_match` themselves, after checking that the user may see the object, and wrap their write
    into `seen_elsewhere`. The request's writes under ``ATOMIC_REQUESTS`` are rolled back. Any other error is reported
    as Django reports it and answered with 500; under ``DEBUG`` it is raised.
    """
    concurrent = (PreconditionError, ConcurrencyError, *STALE_ERRORS, DatabaseError, InterfaceError)
    # A body that is too long, or that ended early.
    unreadable = (SuspiciousOperation, UnreadablePostError)
    handlers: dict[Any, Callable[[HttpRequest, Any], Problem | None]] = {
        Exception: lambda request, error: None,
        **dict.fromkeys(concurrent, lambda request, error: problem_of(error)),
        Http404: lambda request, error: Problem(status=404),
        PermissionDenied: lambda request, error: Problem(status=403, detail=str(error)),
        **dict.fromkeys(unreadable, lambda request, error: Problem(status=400, detail=str(error))),
        AuthenticationError: lambda request, error: Problem(status=401, headers={"WWW-Authenticate": "Bearer"}),
        AuthorizationError: lambda request, error: Problem(status=403),
        ValidationError: _invalid,
        Throttled: lambda request, error: Problem(
            status=429, headers={} if error.wait is None else {"Retry-After": str(math.ceil(error.wait))}
        ),
        HttpError: _refused,
    }
    for kind, build_problem in handlers.items():
        api.add_exception_handler(kind, _handler(build_problem))


def _handler(build_problem: Callable[[HttpRequest, Any], Problem | None]) -> Callable[[HttpRequest, Any], HttpResponse]:
    def handle(request: HttpRequest, error: Any) -> HttpResponse:
        problem = build_problem(request, error)
        if problem is None:
            return _server_error(request, error)
        roll_back_request()
        return problem.to_response()

    return handle


def _server_error(request: HttpRequest, error: Exception) -> HttpResponse:
    """Send the error to ``got_request_exception`` and to the log; answer without its details."""
    if settings.DEBUG or settings.DEBUG_PROPAGATE_EXCEPTIONS:
        raise error
    got_request_exception.send(sender=None, request=request)
    roll_back_request()
    response = Problem(status=500).to_response()
    log_response("%s: %s", response.reason_phrase, request.path, response=response, request=request, exception=error)
    return response


def _refused(request: HttpRequest, error: HttpError) -> Problem:
    # The framework wraps a parser's error into a generic one; the cause has the details.
    refusal = error.__cause__ if isinstance(error.__cause__, HttpError) else error
    return Problem(status=refusal.status_code, detail=str(refusal))


def _invalid(request: HttpRequest, error: ValidationError) -> Problem:
    if any(item.get("loc", ("",))[0] == "body" for item in error.errors) and not request.body:
        return Problem(status=400, detail=_("The body is empty; it must be a JSON object."))
    errors = _plain(error.errors)
    detail = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in errors)
    return Problem(status=422, detail=detail, members={"errors": errors})


def _plain(errors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return place and message, without the input and the exception objects that pydantic adds.

    The framework's paginators give a field's name instead of a place and a message.
    """
    return [
        {"loc": list(error.get("loc", error)), "msg": str(error.get("msg", ", ".join(map(str, error.values()))))}
        for error in errors
    ]
