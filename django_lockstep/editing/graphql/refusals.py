"""Problem details as GraphQL errors."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.http import HttpResponse, JsonResponse

from django_lockstep.http.problems import Problem

__all__ = ["error_of", "refuse"]


def refuse(problem: Problem) -> HttpResponse:
    """Return the response to a request of which nothing was executed."""
    return JsonResponse({"errors": [error_of(problem)]}, status=problem.status, headers=dict(problem.headers))


def error_of(problem: Problem) -> dict[str, Any]:
    """Return the problem as a GraphQL error."""
    details = problem.to_dict()
    # HTTPStatus names 422 differently from Python 3.13 on.
    code = "UNPROCESSABLE_CONTENT" if problem.status == 422 else HTTPStatus(problem.status).name
    return {"message": problem.detail or details["title"], "extensions": {"code": code, **details}}
