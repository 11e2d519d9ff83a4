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
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, AuthorizationError, HttpError, Throttled, ValidationError

from django_lockstep.errors import STALE_ERRORS, ConcurrencyError
from django_lockstep.http.errors import PreconditionError
from django_lockstep.http.middleware import roll_back_request
from django_lockstep.http.problems import Problem, problem_of

__all__ = ["answer_with_problems"]

_DRIVER_ERRORS = (DatabaseError, InterfaceError)


def answer_with_problems(api: NinjaAPI) -> None:
    """Let the API answer errors of concurrent work, and the framework's own, with problem details (RFC 9457).

    Operations call `require_match` themselves, once they know that the object is the user's, and wrap their write into
    `seen_elsewhere`. What the request wrote under ``ATOMIC_REQUESTS`` is rolled back. An error that nothing else fits
    is reported as Django reports it, and answered with 500; under ``DEBUG`` it is raised.
    """
    handlers: dict[Any, Callable[[HttpRequest, Any], Problem | None]] = {
        Exception: lambda request, error: None,
        **dict.fromkeys((PreconditionError, ConcurrencyError, *STALE_ERRORS, *_DRIVER_ERRORS), _concurrent),
        Http404: lambda request, error: Problem(status=404),
        PermissionDenied: lambda request, error: Problem(status=403, detail=str(error)),
        # A body that is too long, or that ended early.
        **dict.fromkeys((SuspiciousOperation, UnreadablePostError), _unreadable),
        AuthenticationError: lambda request, error: Problem(status=401, headers={"WWW-Authenticate": "Bearer"}),
        AuthorizationError: lambda request, error: Problem(status=403),
        ValidationError: _invalid,
        Throttled: lambda request, error: Problem(status=429, headers=_retry_after(error)),
        HttpError: _refused,
    }
    for kind, told in handlers.items():
        api.add_exception_handler(kind, _handler(told))


def _handler(told: Callable[[HttpRequest, Any], Problem | None]) -> Callable[[HttpRequest, Any], HttpResponse]:
    def handle(request: HttpRequest, error: Any) -> HttpResponse:
        problem = told(request, error)
        if problem is None:
            return _server_error(request, error)
        roll_back_request()
        return problem.to_response()

    return handle


def _server_error(request: HttpRequest, error: Exception) -> HttpResponse:
    """Report the error to whoever listens for errors of requests, and to the log; answer without telling it."""
    if settings.DEBUG or settings.DEBUG_PROPAGATE_EXCEPTIONS:
        raise error
    got_request_exception.send(sender=None, request=request)
    roll_back_request()
    response = Problem(status=500).to_response()
    log_response("%s: %s", response.reason_phrase, request.path, response=response, request=request, exception=error)
    return response


def _concurrent(request: HttpRequest, error: Exception) -> Problem | None:
    return problem_of(error)


def _unreadable(request: HttpRequest, error: Exception) -> Problem:
    return Problem(status=400, detail=str(error))


def _refused(request: HttpRequest, error: HttpError) -> Problem:
    # What a parser refuses arrives behind the framework's own error, which says only that it was refused.
    told = error.__cause__ if isinstance(error.__cause__, HttpError) else error
    return Problem(status=told.status_code, detail=str(told))


def _invalid(request: HttpRequest, error: ValidationError) -> Problem:
    if any(each.get("loc", ("",))[0] == "body" for each in error.errors) and not request.body:
        return Problem(status=400, detail="The body is empty; it has to be a JSON object.")
    errors = _plain(error.errors)
    detail = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in errors)
    return Problem(status=422, detail=detail, members={"errors": errors})


def _plain(errors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return where and what, without the input and the exception objects that pydantic adds.

    The framework's own paginators name the field instead of giving a place and a message.
    """
    return [
        {"loc": list(error.get("loc", error)), "msg": str(error.get("msg", ", ".join(map(str, error.values()))))}
        for error in errors
    ]


def _retry_after(error: Throttled) -> dict[str, str]:
    return {} if error.wait is None else {"Retry-After": str(math.ceil(error.wait))}
