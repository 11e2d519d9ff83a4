"""The HTTP API, with django-ninja (extra ``api``): ``path("editing/api/", api.urls)``.

Every operation needs a user, by session (with CSRF) or by bearer token, and that user's permissions for the table:
``view`` or ``change`` to look, ``change`` to check out, ``lockstep_editing.take_over_editlock`` to take over. A table
that the user may not see is answered like an unknown one.

200 done; 400 not JSON; 401 no user; 403 not allowed, another user's check-out, wrong token; 404 unknown table or
record; 409 the check-out has ended, or a concurrent request won; 415 another content type; 422 malformed; 423 refused,
with a list of the holders; 503 a deadlock or a database that is not available. Every
refusal is problem details (RFC 9457).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from datetime import datetime
from typing import Any, get_type_hints

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from ninja import Field, Router, Schema, Status
from ninja.security import HttpBearer, SessionAuth
from pydantic import ConfigDict, create_model

from django_lockstep.editing import tokens
from django_lockstep.editing.errors import EditingError
from django_lockstep.editing.ninja_api import ProblemAPI, ProblemOut
from django_lockstep.editing.operations import check_in, check_out, extend, status_of, take_over
from django_lockstep.editing.requests import (
    checked_out_by,
    make_transition,
    problem_for,
    refusal_of,
    run_operation,
    table_statuses,
    target_for,
)
from django_lockstep.editing.results import CheckOutOptions, EditResult, Hold, StatusTransition
from django_lockstep.errors import ConcurrencyError
from django_lockstep.http.problems import Problem

EditAnswer = Status[Any] | HttpResponse


class SignedToken(HttpBearer):
    """``Authorization: Bearer``: the project's own authenticator, or a token of ``manage.py edit_token``."""

    def authenticate(self, request: HttpRequest, token: str) -> Any:
        """Return the token's user, who becomes ``request.user``."""
        return tokens.authenticate(request, token)


class SessionUser(SessionAuth):
    """The logged-in user; unsafe methods need a CSRF token."""

    def __call__(self, request: HttpRequest) -> Any | None:
        """Return the user, or None without a login, which is 401 and not a failed CSRF check."""
        if self.param_name not in request.COOKIES or not request.user.is_authenticated:
            return None
        return super().__call__(request)


# Schemas of requests and refusals; the API answers with `EditResult`.
def _derive(name: str, kind: Any, base: type[Schema], **members: Any) -> Any:
    """Return the schema of a dataclass, with the descriptions of its members."""
    hints = get_type_hints(kind)
    for member in fields(kind):
        default = ... if member.default is MISSING else member.default
        members[member.name] = hints[member.name], Field(default, **member.metadata)
    return create_model(name, __base__=base, __doc__=kind.__doc__, **members)


class LostOut(ProblemOut):
    """The check-out has ended, or a concurrent request won."""

    how: str = ""
    by: str = ""
    at: datetime | None = None
    result: EditResult | None = None


LockedOut = _derive(
    "LockedOut", EditResult, ProblemOut, holders=(list[Hold], Field(description="The check-outs in the way."))
)


class _In(Schema):
    """A client's request; unknown members are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TokenIn(_In):
    """The token of a check-out; without it, the editor's latest."""

    token: str | None = None


class ExtendIn(TokenIn):
    """Options of an extension, counted from now."""

    ttl: float | None = Field(None, gt=0, description="Seconds; at most LOCKSTEP_EDIT_API_MAX_TTL.")


CheckOutIn = _derive("CheckOutIn", CheckOutOptions, _In)
TransitionIn = _derive("TransitionIn", StatusTransition, _In)


_AUTH = [SignedToken(), SessionUser()]
router = Router(tags=["edit locks"], auth=_AUTH)

_TABLE = "/tables/{name}"
_RECORD = f"{_TABLE}/records/{{path:pk}}"
_RESPONSES: Any = {200: EditResult, **dict.fromkeys((401, 403, 404, 422), ProblemOut), 409: LostOut, 423: LockedOut}


def _answer(result: EditResult) -> EditAnswer:
    refusal = refusal_of(result)
    return refusal.to_response() if refusal else Status(200, result)


@router.get("/tables", response={200: list[EditResult]})
def list_tables(request: HttpRequest) -> list[EditResult]:
    """Return the status of every table that the user may see."""
    return table_statuses(request.user)


@router.get(_TABLE, response=_RESPONSES)
def table_status(request: HttpRequest, name: str) -> EditAnswer:
    """Return the status of a table."""
    return Status(200, status_of(target_for(request.user, name)))


@router.get(f"{_TABLE}/records", response={**_RESPONSES, 200: list[EditResult]})
def checked_out_records(request: HttpRequest, name: str) -> Any:
    """Return the status of the table's checked-out records; deleted records are left out."""
    return Status(200, list(checked_out_by(request.user, target_for(request.user, name))))


def _add_routes(name: str, operation: Callable[..., EditResult], schema: type[Schema], *, summary: str) -> None:
    """Add the operation's routes for tables and for records."""

    def for_table(request: HttpRequest, name: str, options: Any) -> EditAnswer:
        return _answer(run_operation(operation, request.user, name, **options.dict()))

    def for_record(request: HttpRequest, name: str, pk: str, options: Any) -> EditAnswer:
        return _answer(run_operation(operation, request.user, name, pk, **options.dict()))

    for kind, path, view in (("table", _TABLE, for_table), ("record", _RECORD, for_record)):
        view.__annotations__["options"] = schema  # ninja reads the schema from the annotation
        operation_id = f"{kind}_{name.replace('-', '_')}"
        options: Any = {"summary": f"{summary} a {kind}", "operation_id": operation_id}
        router.post(f"{path}/{name}", response=_RESPONSES, **options)(view)


_add_routes("check-out", check_out, CheckOutIn, summary="Check out")
_add_routes("check-in", check_in, TokenIn, summary="Check in")
_add_routes("extend", extend, ExtendIn, summary="Extend the check-out of")
_add_routes("take-over", take_over, CheckOutIn, summary="Take over")


# After the operations: a key may contain slashes, so this path also matches theirs.
@router.get(_RECORD, response=_RESPONSES)
def record_status(request: HttpRequest, name: str, pk: str) -> EditAnswer:
    """Return the status of a record."""
    return Status(200, status_of(target_for(request.user, name, pk)))


@router.post("/transition", response=_RESPONSES)
def transition(request: HttpRequest, change: TransitionIn) -> EditAnswer:  # type: ignore[valid-type]
    """Change the status of a table and of its references, if all have the expected status."""
    return _answer(make_transition(request.user, StatusTransition(**change.dict())))  # type: ignore[attr-defined]


api = ProblemAPI(title="Edit locks", urls_namespace="lockstep-editing-api", auth=_AUTH)
"""The router as an API of its own."""
api.add_router("", router)


def failed(request: HttpRequest, error: Any) -> HttpResponse:
    """Answer the room's errors with problem details. A project's own API registers it for both error trees."""
    return (problem_for(error) or Problem(status=400, detail=str(error))).to_response()


for _kind in (EditingError, ConcurrencyError, PermissionDenied):
    api.add_exception_handler(_kind, failed)
