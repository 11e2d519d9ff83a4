"""Django REST framework's errors as problem details; an optional adapter."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.views import exception_handler, set_rollback

from django_lockstep.http.preconditions import is_conflict_of
from django_lockstep.http.problems import Problem, problem_of

__all__ = ["problem_handler"]


def problem_handler(error: Exception, context: dict[str, Any]) -> Any:
    """Answer errors of concurrent work, and the framework's own, with problem details (RFC 9457).

    For ``REST_FRAMEWORK = {"EXCEPTION_HANDLER": "django_lockstep.http.drf.problem_handler"}``. A serializer's errors
    are the member ``errors``. Rolls back the request's writes under ``ATOMIC_REQUESTS``. A conflict of the object that
    `require_if_match` checked is left to that decorator, which answers 412.
    """
    seen = getattr(context.get("request"), "matched", None)
    # None makes the framework raise the error again, so that the decorator around dispatch() sees it.
    if seen is not None and is_conflict_of(seen, error):
        return None
    problem = problem_of(error)
    if problem is not None:
        set_rollback()
        return problem.to_response()
    response = exception_handler(error, context)
    return response if response is None else _as_problem(error, response)


def _as_problem(error: Exception, response: Any) -> HttpResponse:
    code = error.default_code if isinstance(error, APIException) else ""
    # A serializer's field names could collide with members of the problem.
    of_fields = isinstance(error, ValidationError) or not isinstance(response.data, dict)
    members = {"errors": response.data} if of_fields else response.data
    return Problem(
        status=response.status_code,
        detail=str(members.get("detail", "")),
        members={**members, **({"code": code} if code else {})},
        headers={name: value for name, value in response.headers.items() if name != "Content-Type"},
    ).to_response()
