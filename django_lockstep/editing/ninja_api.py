"""A django-ninja API whose refusals are all problem details; an optional adapter."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, URLResolver, re_path
from django.utils.cache import patch_cache_control, patch_vary_headers
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI, Schema
from ninja.errors import HttpError
from ninja.openapi.schema import OpenAPISchema
from ninja.parser import Parser

from django_lockstep.editing.strict_json import parse_json
from django_lockstep.http.ninja import answer_with_problems
from django_lockstep.http.problems import MEDIA_TYPE, Problem

View = Callable[..., Any]


class ProblemOut(Schema):
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str = ""


class StrictParser(Parser):
    """Accepts only ``application/json`` that is valid by RFC 8259."""

    def parse_body(self, request: HttpRequest) -> Any:
        """Return the parsed body.

        Raises ``HttpError``: 415 for another content type, 400 for what `parse_json` refuses.
        """
        if request.content_type != "application/json":
            raise HttpError(415, f"The content type must be application/json, not {request.content_type!r}")
        try:
            return parse_json(request.body)
        except ValueError as error:
            raise HttpError(400, f"The body is not valid JSON: {error}") from error


class ProblemAPI(NinjaAPI):
    """A ``NinjaAPI`` of synchronous operations, whose errors are problem details; see `answer_with_problems`.

    This includes unknown paths and methods: the API answers for everything below its prefix, so a project's own views
    there must come before it in ``urlpatterns``. `StrictParser` reads bodies. HEAD is answered wherever GET is.
    Responses are private and revalidated unless the operation sets another ``Cache-Control``. The schema declares the
    refusals common to all operations; it and its pages need a login.
    """

    def __init__(self, **options: Any) -> None:
        options.setdefault("parser", StrictParser())
        # The schema names every operation and field, which not every visitor needs to know.
        options.setdefault("docs_decorator", login_required)
        super().__init__(**options)
        answer_with_problems(self)

    @property
    def urls(self) -> tuple[list[URLResolver | URLPattern], str, str]:
        """Return Django's URL configuration."""
        patterns, app_name, namespace = super().urls
        for pattern in patterns:
            if isinstance(pattern, URLPattern):
                pattern.callback = _unknown if pattern.name == "api-root" else _with_head(pattern.callback)
        # Last, so that it gets what no operation has matched: otherwise Django's HTML page would answer.
        return [*patterns, re_path("", _unknown)], app_name, namespace

    def get_openapi_schema(self, **options: Any) -> OpenAPISchema:
        """Return the schema; refusals have the media type of RFC 9457 and are declared for every operation."""
        schema = super().get_openapi_schema(**options)
        schema.add_schema_definitions({"ProblemOut": ProblemOut.json_schema()})
        for path in schema["paths"].values():
            for operation in path.values():
                _declare_refusals(operation)
        return schema


def _declare_refusals(operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemOut"}}}
    for status in (400, 401, 403, 404, 422, 503, *([415] if "requestBody" in operation else ())):
        responses.setdefault(status, {"description": HTTPStatus(status).phrase, "content": content})
    for status, response in responses.items():
        if int(status) >= HTTPStatus.BAD_REQUEST:
            response["content"] = {MEDIA_TYPE: next(iter(response["content"].values()))}


@csrf_exempt
def _unknown(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
    return Problem(status=404).to_response()


def _with_head(view: View) -> View:
    """Return the view, which also answers HEAD, with the cache headers of a private response."""

    @wraps(view)
    def serve(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        method = request.method
        # The server omits the body.
        request.method = "GET" if method == "HEAD" else method
        try:
            return _add_headers(view(request, *args, **kwargs))
        finally:
            request.method = method

    return serve


def _add_headers(response: HttpResponseBase) -> HttpResponseBase:
    if response.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = {method.strip() for method in response.headers["Allow"].split(",")}
        allowed |= {"HEAD"} if "GET" in allowed else set()
        response = Problem(status=405, headers={"Allow": ", ".join(sorted(allowed))}).to_response()
    if "Cache-Control" not in response.headers:
        patch_cache_control(response, private=True, no_cache=True)
    patch_vary_headers(response, ("Authorization", "Cookie"))
    return response
