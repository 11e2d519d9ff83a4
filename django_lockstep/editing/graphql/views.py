"""The endpoint: who is asking, and how much; only then is the query read."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.db import transaction
from django.http import HttpRequest, HttpResponse, UnreadablePostError
from django.http.response import HttpResponseBase
from django.middleware.csrf import CsrfViewMiddleware, get_token
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt

from django_lockstep.editing.graphql.execution import execute, refuse
from django_lockstep.editing.tokens import authenticate
from django_lockstep.http.problems import Problem

MAX_BODY = 64 * 1024
"""Bytes of a request."""


@transaction.non_atomic_requests  # an error of one field must not undo the others, which were answered as done
@csrf_exempt  # a bearer token needs no other proof; a session's is asked for below
@never_cache
def graphql(request: HttpRequest) -> HttpResponseBase:
    """Answer a GraphQL request by POST; under ``DEBUG`` a GET shows GraphiQL."""
    if settings.DEBUG and request.method == "GET":
        get_token(request)  # GraphiQL reads it from the cookie
        return execute(request)
    if request.method != "POST":
        problem: Problem | None = Problem(status=405, headers={"Allow": "POST"})
    # Before the login: asking for the CSRF token of a form would read the body.
    elif request.content_type != "application/json":
        detail = f"The content type must be application/json, not {request.content_type!r}"
        problem = Problem(status=415, detail=detail)
    else:
        problem = _login_problem(request) or _body_problem(request)
    return refuse(problem) if problem else execute(request)


def _login_problem(request: HttpRequest) -> Problem | None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and authenticate(request, token):
        return None
    if not request.user.is_authenticated:
        return Problem(status=401, headers={"WWW-Authenticate": "Bearer"})
    check = CsrfViewMiddleware(lambda _: HttpResponse())
    check.process_request(request)
    if check.process_view(request, refuse, (), {}) is not None:
        return Problem(status=403, detail="The CSRF token is missing or wrong.")
    return None


def _body_problem(request: HttpRequest) -> Problem | None:
    try:
        if len(request.body) <= MAX_BODY:
            return None
    except UnreadablePostError as error:
        return Problem(status=400, detail=str(error))
    except RequestDataTooBig:  # Django's own limit is the smaller one
        pass
    return Problem(status=413, detail=f"The body must have at most {MAX_BODY} bytes.")
