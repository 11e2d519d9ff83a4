"""Problem details as GraphQL errors."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.http import HttpResponse, JsonResponse

from django_lockstep.http.problems import Problem

# HTTPStatus names these two differently from Python 3.13 on.
_CODES = {413: "CONTENT_TOO_LARGE", 422: "UNPROCESSABLE_CONTENT"}


def refuse(problem: Problem) -> HttpResponse:
    """Return the response to a request of which nothing was executed."""
    return JsonResponse({"errors": [error_of(problem)]}, status=problem.status, headers=dict(problem.headers))


def error_of(problem: Problem) -> dict[str, Any]:
    """Return the problem as a GraphQL error."""
    details = problem.to_dict()
    code = _CODES.get(problem.status) or HTTPStatus(problem.status).name
    return {"message": problem.detail or details["title"], "extensions": {"code": code, **details}}
