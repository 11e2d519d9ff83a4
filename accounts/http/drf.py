"""Django REST framework's errors as problem details; an optional adapter."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework.exceptions import APIException
from rest_framework.views import exception_handler, set_rollback

from accounts.http.problems import Problem, problem_of

__all__ = ["problem_handler"]


def problem_handler(error: Exception, context: dict[str, Any]) -> Any:
    """Answer errors of concurrent work, and the framework's own, with problem details (RFC 9457).

    For ``REST_FRAMEWORK = {"EXCEPTION_HANDLER": "accounts.http.drf.problem_handler"}``. Rolls back what the request
    wrote under ``ATOMIC_REQUESTS``.
    """
    problem = problem_of(error)
    if problem is not None:
        set_rollback()
        return problem.to_response()
    response = exception_handler(error, context)
    return response if response is None else _as_problem(error, response)


def _as_problem(error: Exception, response: Any) -> HttpResponse:
    code = error.default_code if isinstance(error, APIException) else ""
    data = response.data if isinstance(response.data, dict) else {"errors": response.data}
    members = {name: value for name, value in data.items() if name != "detail"}
    return Problem(
        status=response.status_code,
        detail=str(data.get("detail", "")),
        members={**members, **({"code": code} if code else {})},
        headers={name: value for name, value in response.headers.items() if name != "Content-Type"},
    ).to_response()
