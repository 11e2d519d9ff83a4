"""The HTTP API, with django-ninja (extra ``api``): ``path("editing/api/", api.urls)``.

Every operation needs a user, by session (with CSRF) or by bearer token, and that user's permissions for the table:
``view`` or ``change`` to look, ``change`` to check out, ``lockstep_editing.take_over_editlock`` to take over. A table
that the user may not see is answered like an unknown one.

200 done; 400 not JSON; 401 no user; 403 not allowed, another user's check-out, wrong token; 404 unknown table or
record; 409 the check-out has ended, or a concurrent request won; 415 another content type; 422 malformed; 423 refused,
with a list of the holders; 503 the database is not available. Every refusal is problem details (RFC 9457).
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
from django_lockstep.editing.conf import api_authenticator, api_max_depth, api_max_ttl
from django_lockstep.editing.errors import EditingError, LimitExceeded, UnknownRecord, UnknownTable
from django_lockstep.editing.expected_status import transition
from django_lockstep.editing.holds import checked_out
from django_lockstep.editing.models import Status as LockStatus
from django_lockstep.editing.operations import check_in, check_out, extend, status_of, take_over
from django_lockstep.editing.plans import plan_for
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

EditAnswer = Status[Any] | HttpResponse


class SignedToken(HttpBearer):
    """``Authorization: Bearer``: the project's own authenticator, or a token of ``manage.py edit_token``."""

    def authenticate(self, request: HttpRequest, token: str) -> Any:
        """Return the token's user, who becomes ``request.user``."""
        authenticate = api_authenticator()
        user = authenticate(request, token) if authenticate else credentials.user_of(token)
        if user is not None and user.is_active:
            request.user = user
            return user
        # After a failed token only, so that valid clients are not throttled.
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
        # One text for both, so that the existence of hidden tables is not disclosed.
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
    # One URL for one record: "007" and "7" would be the same row with two names.
    if "\0" in pk or (found.key != pk and not isinstance(found.pk, tuple)):
        raise UnknownRecord(f"{pk!r} is not a primary key of {table.model._meta.label} in its canonical form")
    return found


def _require_allowed(request: HttpRequest, target: Target, options: Any) -> None:
    _require_time(getattr(options, "ttl", None))
    if isinstance(options, CheckOutIn):

        def sees(model: type[models.Model]) -> bool:
            return _may(request, model, "view", "change")

        _require_visible(target, sees, depth=options.depth, related=options.related)


def _require_time(ttl: float | None) -> None:
    """Raise `LimitExceeded` for more seconds than ``LOCKSTEP_EDIT_API_MAX_TTL``."""
    longest = api_max_ttl().total_seconds()
    if ttl is not None and ttl > longest:
        raise LimitExceeded(f"ttl must be at most {longest:g} seconds, not {ttl:g}")


def _require_visible(
    target: Target, sees: Callable[[type[models.Model]], bool], *, depth: int | None, related: Any
) -> None:
    """Raise ``PermissionDenied`` if the check-out would lock tables that the user may not see.

    `LimitExceeded` for more foreign keys than ``LOCKSTEP_EDIT_API_MAX_DEPTH``.
    """
    deepest = api_max_depth()
    if deepest is not None and (depth is None or depth > deepest):
        raise LimitExceeded(f"depth must be at most {deepest}, not {depth!r}")
    wanted = plan_for(target, depth=depth, related=related).wanted
    if not all(sees(one.target.model) for one in wanted if one.status == LockStatus.LOCKED):
        raise PermissionDenied(
            f"{target.table} refers to tables that the check-out would lock and that you may not see"
        )


def _answer(result: EditResult) -> EditAnswer:
    data = result.as_json()
    if result.lock_result:
        return Status(200, data)
    if result.must_end:
        return _refusal(423, f"{result.table} is taken", **data, holders=data["must_end"])
    return _refusal(409, f"{result.table} is {result.current_status}", result=data)


def _refusal(status: int, detail: str, **members: Any) -> HttpResponse:
    return Problem(status=status, detail=detail, members=members).to_response()


@router.get("/tables", response={200: list[ResultOut]})
def list_tables(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the status of every table that the user may see."""
    seen = [model for model in apps.get_models() if not model._meta.proxy and _may(request, model, "view", "change")]
    return [status_of(model).as_json() for model in seen]


@router.get(_TABLE, response=_RESPONSES)
def table_status(request: HttpRequest, name: str) -> EditAnswer:
    """Return the status of a table."""
    return Status(200, status_of(_table(request, name)).as_json())


@router.get(f"{_TABLE}/records", response={**_RESPONSES, 200: list[ResultOut]})
def checked_out_records(request: HttpRequest, name: str) -> Any:
    """Return the status of the table's checked-out records; deleted records are left out."""
    return Status(200, list(_statuses(checked_out(_table(request, name)))))


def _statuses(records: Iterable[Target]) -> Iterator[dict[str, Any]]:
    for one in records:
        with suppress(UnknownRecord):
            yield status_of(one).as_json()


def _add_routes(name: str, operation: Callable[..., EditResult], schema: type[Schema], *, summary: str) -> None:
    """Add the operation's routes for tables and for records."""

    def answer(request: HttpRequest, target: Target, options: Any) -> EditAnswer:
        _require_allowed(request, target, options)
        return _answer(operation(target, request.user, **options.dict()))

    def for_table(request: HttpRequest, name: str, options: Any) -> EditAnswer:
        return answer(request, _table(request, name, change=True), options)

    def for_record(request: HttpRequest, name: str, pk: str, options: Any) -> EditAnswer:
        return answer(request, _record(request, name, pk, change=True), options)

    for kind, path, view in (("table", _TABLE, for_table), ("record", _RECORD, for_record)):
        view.__annotations__["options"] = schema  # ninja reads the schema from the annotation
        add = router.post(
            f"{path}/{name}",
            response=_RESPONSES,
            summary=f"{summary} a {kind}",
            operation_id=f"{kind}_{name.replace('-', '_')}",
        )
        add(view)


_add_routes("check-out", check_out, CheckOutIn, summary="Check out")
_add_routes("check-in", check_in, TokenIn, summary="Check in")
_add_routes("extend", extend, ExtendIn, summary="Extend the check-out of")
_add_routes("take-over", take_over, CheckOutIn, summary="Take over")


# After the operations: a key may contain slashes, so this path also matches theirs.
@router.get(_RECORD, response=_RESPONSES)
def record_status(request: HttpRequest, name: str, pk: str) -> EditAnswer:
    """Return the status of a record."""
    return Status(200, status_of(_record(request, name, pk)).as_json())


@router.post("/transition", response=_RESPONSES)
def make_transition(request: HttpRequest, wanted: TransitionIn) -> EditAnswer:
    """Change the status of a table and of its references, if all have the expected status."""
    table = _table(request, wanted.table, change=True)
    target = table if wanted.record is None else _record_of(table, wanted.record)
    references = [_table(request, name) for name in wanted.fk_tables]
    _require_time(wanted.ttl)
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
    """Answer the room's errors with problem details. A project's own API registers it for both error trees."""
    if isinstance(error, ConcurrencyError):
        facts = {"how": getattr(error, "how", ""), "by": getattr(error, "by", ""), "at": getattr(error, "at", None)}
        return _refusal(409, str(error), **facts)
    return _refusal(next((status for kind, status in _STATUS if isinstance(error, kind)), 400), str(error))


for _kind in (EditingError, ConcurrencyError, PermissionDenied):
    api.add_exception_handler(_kind, failed)
