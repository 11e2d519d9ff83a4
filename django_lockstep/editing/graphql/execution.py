"""How queries are executed: what they may ask for, and how their errors are answered."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import strawberry
from cross_web import HTTPException
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from graphql import FieldNode, GraphQLError, NoSchemaIntrospectionCustomRule, ValidationContext, ValidationRule
from strawberry.django.views import GraphQLView
from strawberry.extensions import AddValidationRules, MaxTokensLimiter
from strawberry.http import GraphQLHTTPResponse
from strawberry.schema.config import StrawberryConfig
from strawberry.types import ExecutionContext, ExecutionResult

from django_lockstep.editing.graphql.fields import Mutation, Query
from django_lockstep.editing.requests import problem_for
from django_lockstep.editing.strict_json import parse_json
from django_lockstep.http.problems import Problem

_MAX_ALIASES, _MAX_TOKENS = 10, 1000
# HTTPStatus names these two differently from Python 3.13 on.
_CODES = {413: "CONTENT_TOO_LARGE", 422: "UNPROCESSABLE_CONTENT"}


class _AliasLimit(ValidationRule):
    """Refuses a document with many aliases: each may be a check-out.

    Counted where they are written. strawberry's rule counts a fragment wherever it is spread: fragments that each
    spread the next one twice, a few hundred bytes, would keep it for minutes.
    """

    def __init__(self, context: ValidationContext) -> None:
        super().__init__(context)
        self._aliases = 0

    def enter_field(self, node: FieldNode, *_: object) -> None:
        self._aliases += node.alias is not None
        if self._aliases == _MAX_ALIASES + 1:
            self.report_error(GraphQLError(f"The document has more than {_MAX_ALIASES} aliases", node))


class _Schema(strawberry.Schema):
    def process_errors(self, errors: list[GraphQLError], execution_context: ExecutionContext | None = None) -> None:
        """Log the errors of the server, not those that a client can mend."""
        super().process_errors([error for error in errors if _problem_in(error).status == 500], execution_context)


schema = _Schema(
    query=Query,
    mutation=Mutation,
    extensions=[
        # A function, which is called for each request: tests change DEBUG.
        lambda: AddValidationRules([_AliasLimit, *([] if settings.DEBUG else [NoSchemaIntrospectionCustomRule])]),
        lambda: MaxTokensLimiter(_MAX_TOKENS),
    ],
    # A suggestion would say what introspection must not.
    config=StrawberryConfig(auto_camel_case=False, disable_field_suggestions=True),
)
"""The schema, for ``manage.py export_schema`` and for tests."""


class _View(GraphQLView[Any, None]):
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return self.run(request=request)
        except HTTPException as error:
            return refuse(Problem(status=error.status_code, detail=error.reason))

    def decode_json(self, data: str | bytes) -> object:
        try:
            value = parse_json(data)
        except ValueError as error:
            raise HTTPException(400, f"The body is not valid JSON: {error}") from error
        if not isinstance(value, dict):
            raise HTTPException(400, "The body must be a JSON object")
        return value

    def process_result(self, request: HttpRequest, result: ExecutionResult) -> GraphQLHTTPResponse:
        answer: GraphQLHTTPResponse = {"data": result.data}
        if result.errors:
            answer["errors"] = [{**error.formatted, **error_of(_problem_in(error))} for error in result.errors]
        return answer


def execute(request: HttpRequest) -> HttpResponseBase:
    # As arguments: the defaults of the view's constructor would take the place of attributes of the class.
    ide = "graphiql" if settings.DEBUG else None
    return _View.as_view(schema=schema, graphql_ide=ide, allow_queries_via_get=False)(request)


def _problem_in(error: GraphQLError) -> Problem:
    """Return the problem of an error; 500 without a reason for what no client can mend."""
    cause = error.original_error
    if cause is None or isinstance(cause, GraphQLError):
        return Problem(status=400, detail=error.message)
    return problem_for(cause) or Problem(status=500)


def refuse(problem: Problem) -> HttpResponse:
    """Return the response to a request of which nothing was executed."""
    return JsonResponse({"errors": [error_of(problem)]}, status=problem.status, headers=dict(problem.headers))


def error_of(problem: Problem) -> dict[str, Any]:
    """Return the problem as a GraphQL error."""
    details = problem.to_dict()
    code = _CODES.get(problem.status) or HTTPStatus(problem.status).name
    return {"message": problem.detail or details["title"], "extensions": {"code": code, **details}}
