"""The HTTP API, with django-ninja (extra ``api``): ``path("editing/api/", api.urls)``.

Every operation needs a user, by session (with CSRF) or by bearer token, and that user's permissions for the table:
``view`` or ``change`` to look, ``change`` to check out, ``lockstep_editing.take_over_editlock`` to take over.
Tables that a user may not see are unknown to them.

200 done; 400 not JSON; 401 nobody; 403 not allowed, somebody else's, wrong token; 404 unknown table or record; 409 the
check-out has ended, or the race was lost; 415 another content type; 422 malformed; 423 refused, with the holders as a
list; 503 the database cannot be asked now. Every refusal is problem details (RFC 9457).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from django.apps import apps
from django.contrib.auth import get_permission_codename
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.db import models
from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema, Status
from ninja.security import HttpBearer

from django_lockstep.contrib.logins import FailedLogins, SessionUser
from django_lockstep.editing import credentials
from django_lockstep.editing.conf import api_authenticator
from django_lockstep.editing.errors import EditingError, UnknownRecord, UnknownTable
from django_lockstep.editing.expected_status import transition
from django_lockstep.editing.holds import checked_out
from django_lockstep.editing.limits import require_time, require_visible
from django_lockstep.editing.operations import check_in, check_out, extend, status_of, take_over
from django_lockstep.editing.results import EditResult
from django_lockstep.editing.schemas import (
    CheckOutIn,
    ExtendIn,
    LockedOut,
    LostOut,
    ResultOut,
    TokenIn,
    TransitionIn,
)
from django_lockstep.editing.targets import Target, record, target_of
from django_lockstep.errors import ConcurrencyError
from django_lockstep.http.ninja_api import ProblemAPI, ProblemOut
from django_lockstep.http.problems import Problem

__all__ = ["api", "failed", "router"]

Answer = Status[Any] | HttpResponse


class SignedToken(HttpBearer):
    """``Authorization: Bearer``: the project's own authenticator, or a token of ``manage.py edit_token``."""

    def authenticate(self, request: HttpRequest, token: str) -> Any:
        """Return the user, who is the request's user from here on."""
        theirs = api_authenticator()
        user = theirs(request, token) if theirs else credentials.user_of(token)
        if user is not None and user.is_active:
            request.user = user
            return user
        FailedLogins("30/m").count(request)
        return None


_AUTH = [SignedToken(), SessionUser()]
router = Router(tags=["edit locks"], auth=_AUTH)

_TABLE = "/tables/{name}"
_RECORD = f"{_TABLE}/records/{{path:pk}}"
_FAILURES = {**dict.fromkeys((401, 403, 404, 422), ProblemOut), 409: LostOut, 423: LockedOut}
_RESPONSES: Any = {200: ResultOut, **_FAILURES}


def _table(request: HttpRequest, name: str, *, change: bool = False) -> Target:
    """Return the table if the user may see it; raise `UnknownTable` otherwise, ``PermissionDenied`` without change."""
    table = _known(name)
    if table is None or not _may(request, table.model, "view", "change"):
        # One text for both, so that nobody learns which tables there are.
        raise UnknownTable(f"There is no table {name!r}")
    if change and not _may(request, table.model, "change"):
        raise PermissionDenied(f"{table.table} may not be changed by {request.user}")
    return table


def _known(name: str) -> Target | None:
    try:
        return target_of(name)
    except UnknownTable:
        return None


def _may(request: HttpRequest, model: type[models.Model], *actions: str) -> bool:
    names = [f"{model._meta.app_label}.{get_permission_codename(action, model._meta)}" for action in actions]
    return any(request.user.has_perm(name) for name in names)


def _record(request: HttpRequest, name: str, pk: str, *, change: bool = False) -> Target:
    return _record_of(_table(request, name, change=change), pk)


def _record_of(table: Target, pk: str) -> Target:
    found = record(table.model, pk)
    if "\0" in pk or (found.key != pk and not isinstance(found.pk, tuple)):
        raise UnknownRecord(f"{pk!r} is not how {table.model._meta.label} writes a primary key")
    return found


def _require_allowed(request: HttpRequest, target: Target, options: Any) -> None:
    require_time(getattr(options, "ttl", None))
    if isinstance(options, CheckOutIn):

        def sees(model: type[models.Model]) -> bool:
            return _may(request, model, "view", "change")

        require_visible(target, sees, depth=options.depth, related=options.related)


def _answer(result: EditResult) -> Answer:
    told = result.as_json()
    if result.lock_result:
        return Status(200, told)
    if result.must_end:
        return _refusal(423, f"{result.table} is taken", **told, holders=told["must_end"])
    return _refusal(409, f"{result.table} is {result.current_status}", result=told)


def _refusal(status: int, detail: str, **members: Any) -> HttpResponse:
    return Problem(status=status, detail=detail, members=members).to_response()


@router.get("/tables", response={200: list[ResultOut]})
def list_tables(request: HttpRequest) -> list[dict[str, Any]]:
    """Tell the status of every table that the user may see."""
    seen = [model for model in apps.get_models() if not model._meta.proxy and _may(request, model, "view", "change")]
    return [status_of(model).as_json() for model in seen]


@router.get(_TABLE, response=_RESPONSES)
def table_status(request: HttpRequest, name: str) -> Answer:
    """Tell the status of a table."""
    return Status(200, status_of(_table(request, name)).as_json())


@router.get(f"{_TABLE}/records", response={**_RESPONSES, 200: list[ResultOut]})
def records_out(request: HttpRequest, name: str) -> Any:
    """Tell the status of the table's records that somebody has checked out; not of those deleted since."""
    return Status(200, list(_statuses(checked_out(_table(request, name)))))


def _statuses(records: Iterable[Target]) -> Iterator[dict[str, Any]]:
    for one in records:
        with suppress(UnknownRecord):
            yield status_of(one).as_json()


def _offer(name: str, operation: Callable[..., EditResult], schema: type[Schema], *, summary: str) -> None:
    """Serve an operation below a table and below a record."""

    def answer(request: HttpRequest, target: Target, options: Any) -> Answer:
        _require_allowed(request, target, options)
        return _answer(operation(target, request.user, **options.dict()))

    def for_table(request: HttpRequest, name: str, options: Any) -> Answer:
        return answer(request, _table(request, name, change=True), options)

    def for_record(request: HttpRequest, name: str, pk: str, options: Any) -> Answer:
        return answer(request, _record(request, name, pk, change=True), options)

    for kind, path, view in (("table", _TABLE, for_table), ("record", _RECORD, for_record)):
        view.__annotations__["options"] = schema  # where ninja looks for it
        add = router.post(
            f"{path}/{name}",
            response=_RESPONSES,
            summary=f"{summary} a {kind}",
            operation_id=f"{kind}_{name.replace('-', '_')}",
        )
        add(view)


_offer("check-out", check_out, CheckOutIn, summary="Check out")
_offer("check-in", check_in, TokenIn, summary="Check in")
_offer("extend", extend, ExtendIn, summary="Extend the check-out of")
_offer("take-over", take_over, CheckOutIn, summary="Take over")


# After the operations: a key may contain slashes, so that this path matches theirs as well.
@router.get(_RECORD, response=_RESPONSES)
def record_status(request: HttpRequest, name: str, pk: str) -> Answer:
    """Tell the status of a record."""
    return Status(200, status_of(_record(request, name, pk)).as_json())


@router.post("/transition", response=_RESPONSES)
def make_transition(request: HttpRequest, wanted: TransitionIn) -> Answer:
    """Change the status of a table and of those it refers to, if all are what the client expects."""
    table = _table(request, wanted.table, change=True)
    target = table if wanted.record is None else _record_of(table, wanted.record)
    references = [_table(request, name) for name in wanted.fk_tables]
    require_time(wanted.ttl)
    return _answer(transition(target, references, wanted=wanted, editor=request.user))


api = ProblemAPI(title="Edit locks", urls_namespace="lockstep-editing-api", auth=_AUTH)
"""The router as an API of its own."""
api.add_router("", router)

_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (LookupError, 404),
    (ObjectDoesNotExist, 404),
    (PermissionDenied, 403),
    (ValueError, 422),
)


def failed(request: HttpRequest, error: Any) -> HttpResponse:
    """Answer wrong use and lost races. A project with an API of its own registers it for both error trees."""
    if isinstance(error, ConcurrencyError):
        facts = {"how": getattr(error, "how", ""), "by": getattr(error, "by", ""), "at": getattr(error, "at", None)}
        return _refusal(409, str(error), **facts)
    return _refusal(next((status for kind, status in _STATUS if isinstance(error, kind)), 400), str(error))


for _kind in (EditingError, ConcurrencyError, PermissionDenied):
    api.add_exception_handler(_kind, failed)
