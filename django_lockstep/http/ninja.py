"""django-ninja's errors as problem details; an optional adapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, AuthorizationError, HttpError, Throttled, ValidationError

from django_lockstep.errors import STALE_ERRORS, ConcurrencyError
from django_lockstep.http.errors import PreconditionError
from django_lockstep.http.middleware import roll_back_request
from django_lockstep.http.problems import Problem, problem_of

__all__ = ["answer_with_problems"]


def answer_with_problems(api: NinjaAPI) -> None:
    """Let the API answer errors of concurrent work, and the framework's own, with problem details (RFC 9457).

    Operations call `require_match` themselves, once they know that the object is the user's, and wrap their write into
    `seen_elsewhere`. What the request wrote under ``ATOMIC_REQUESTS`` is rolled back.
    """
    handlers: dict[Any, Callable[[Any], Problem | None]] = {
        PreconditionError: problem_of,
        ConcurrencyError: problem_of,
        **dict.fromkeys(STALE_ERRORS, problem_of),
        OperationalError: problem_of,
        Http404: lambda error: Problem(status=404),
        AuthenticationError: lambda error: Problem(status=401, headers={"WWW-Authenticate": "Bearer"}),
        AuthorizationError: lambda error: Problem(status=403),
        ValidationError: lambda error: Problem(status=422, members={"errors": _plain(error.errors)}),
        Throttled: lambda error: Problem(status=429, headers=_retry_after(error)),
        HttpError: lambda error: Problem(status=error.status_code, detail=str(error)),
    }
    for kind, told in handlers.items():
        api.add_exception_handler(kind, _handler(told))


def _handler(told: Callable[[Any], Problem | None]) -> Callable[[HttpRequest, Any], HttpResponse]:
    def handle(request: HttpRequest, error: Any) -> HttpResponse:
        problem = told(error)
        if problem is None:
            raise error
        roll_back_request()
        return problem.to_response()

    return handle


def _plain(errors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return where and what, without the input and the exception objects that pydantic adds.

    The framework's own paginators name the field instead of giving a place and a message.
    """
    return [
        {"loc": list(error.get("loc", error)), "msg": str(error.get("msg", ", ".join(map(str, error.values()))))}
        for error in errors
    ]


def _retry_after(error: Throttled) -> dict[str, str]:
    return {} if error.wait is None else {"Retry-After": str(int(error.wait))}
