"""Django REST framework: errors as problem details, conditional requests for generic views; an optional adapter."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpResponse
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.views import exception_handler, set_rollback

from django_lockstep.errors import raise_if_committed
from django_lockstep.http.preconditions import (
    PreconditionError,
    changed_since,
    check_preconditions,
    etag,
    is_conflict_of,
    not_modified,
    require_match,
)
from django_lockstep.http.problems import Problem, problem_of, refusal_of

__all__ = ["IfMatchMixin", "problem_handler"]

_SAFE = {"GET", "HEAD", "OPTIONS", "TRACE"}


class IfMatchMixin:
    """Lets a generic view change an object only in the version that the client has seen; put it before other bases.

    For views and view sets of a `VersionedModel`. ``get_object()`` compares the request's ``If-Match`` with the object
    that it returns, after the framework's permission checks, and a serializer saves that instance: the UPDATE compares
    the same version. Answers as `django_lockstep.http.require_if_match` does: 428 without the header, 412 for another
    version, also for one that came between the check and the write, 304 for a read version; successful responses have
    the new ``ETag``. A POST that creates needs no header. Writes under ``ATOMIC_REQUESTS`` are rolled back.
    """

    matched: Any = None
    """The object that was compared; None before ``get_object()``."""

    def get_object(self) -> Any:
        """Return the object of the URL, compared with the request's tags."""
        # Django's own: to describe the actions of a view, the framework asks for the object as if by PUT.
        request = self.request._request  # type: ignore[attr-defined]
        try:
            obj = super().get_object()  # type: ignore[misc]
        except Http404:
            check_preconditions(request, None)  # RFC 9110: If-Match of an object that does not exist is 412
            raise
        if request.method not in _SAFE:
            require_match(request, obj)
        self.matched = obj
        return obj

    def handle_exception(self, error: Exception) -> Any:
        """Answer a failed precondition, or a conflict of the compared object, with its status and current tag."""
        if self.matched is not None and is_conflict_of(self.matched, error):
            raise_if_committed(error)
            error = changed_since(self.matched)
        if isinstance(error, PreconditionError):
            set_rollback()
            return refusal_of(error).to_response()
        return super().handle_exception(error)  # type: ignore[misc]

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Add the tag of the object's version; answer 304 if the client has it."""
        obj = self.matched
        if obj is not None and 200 <= response.status_code < 300 and request.method != "DELETE":
            if request.method in {"GET", "HEAD"} and not_modified(request, obj):
                response = HttpResponse(status=304)
            response.headers.setdefault("ETag", etag(obj))
        return super().finalize_response(request, response, *args, **kwargs)  # type: ignore[misc]


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
