"""A django-ninja API whose refusals are all problem details; an optional adapter."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.utils.cache import add_never_cache_headers
from ninja import NinjaAPI, Schema
from ninja.errors import HttpError
from ninja.openapi.schema import OpenAPISchema
from ninja.parser import Parser

from django_lockstep.editing.strict_json import parse_json
from django_lockstep.http.ninja import answer_with_problems
from django_lockstep.http.problems import MEDIA_TYPE


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

    `StrictParser` reads bodies. The schema declares the refusals common to all operations; it and its pages need a
    login.
    """

    def __init__(self, **options: Any) -> None:
        options.setdefault("parser", StrictParser())
        # The schema names every operation and field, which not every visitor needs to know.
        options.setdefault("docs_decorator", login_required)
        super().__init__(**options)
        answer_with_problems(self)

    def create_response(self, *args: Any, **options: Any) -> HttpResponse:
        """Return a response that no cache keeps: it is about its user, and may have the token of a check-out."""
        response: HttpResponse = super().create_response(*args, **options)
        add_never_cache_headers(response)
        return response

    def get_openapi_schema(self, **options: Any) -> OpenAPISchema:
        """Return the schema; refusals have the media type of RFC 9457 and are declared for every operation."""
        schema = super().get_openapi_schema(**options)
        schema.add_schema_definitions({"ProblemOut": ProblemOut.json_schema()})
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemOut"}}}
        for operation in (operation for path in schema["paths"].values() for operation in path.values()):
            responses = operation["responses"]
            for status in (400, 401, 403, 404, 422, 503, *([415] if "requestBody" in operation else ())):
                responses.setdefault(status, {"description": HTTPStatus(status).phrase, "content": content})
            for status, response in responses.items():
                if int(status) >= HTTPStatus.BAD_REQUEST:
                    response["content"] = {MEDIA_TYPE: next(iter(response["content"].values()))}
        return schema
