"""Makes the API: its operations, who may call them, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from http import HTTPStatus
from typing import Any

from django.contrib.admin.views.decorators import staff_member_required
from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema
from ninja.pagination import CursorPagination, paginate
from ninja.throttling import BaseThrottle

from accounts.api.bank import Bank
from accounts.api.schemas import AccountOut, EntryOut, ProblemOut, TransferOut
from accounts.api.tokens import TokenUser
from accounts.errors import IdempotencyKeyReused, InsufficientFunds, InvalidAmount
from accounts.models import AbstractAccount
from django_lockstep.contrib.logins import SessionUser
from django_lockstep.http import Problem
from django_lockstep.http.ninja import answer_with_problems
from django_lockstep.http.problems import MEDIA_TYPE

__all__ = ["account_api"]


def account_api(
    model: type[AbstractAccount] | None = None,
    *,
    auth: Sequence[Callable[..., Any]] | None = None,
    throttle: Sequence[BaseThrottle] = (),
    namespace: str = "accounts-api",
) -> NinjaAPI:
    """Return the API of the accounts; a project puts its ``urls`` where it likes.

    ``model`` is the account model, by default ``accounts.Account``. ``auth`` says who is let in, by default whoever
    has a token (`make_token`) or a session; nobody else is. ``throttle`` takes django-ninja's throttles. The pages of
    the documentation are for staff. Every error is answered with problem details (RFC 9457).
    """
    if model is None:
        from accounts.models import Account

        model = Account
    api = _Api(
        title="Accounts",
        urls_namespace=namespace,
        auth=list(auth) if auth is not None else [TokenUser(), SessionUser()],
        throttle=list(throttle),
        docs_decorator=staff_member_required,
    )
    _add_operations(api, Bank(model))
    answer_with_problems(api)
    for kind, problem in _PROBLEMS.items():
        api.add_exception_handler(kind, _answer(problem))
    return api


class _Api(NinjaAPI):
    """Says of problem details what they are."""

    def get_openapi_schema(self, **options: Any) -> OpenAPISchema:
        """Return the schema; refusals have the media type of RFC 9457."""
        schema = super().get_openapi_schema(**options)
        for operation in (each for path in schema["paths"].values() for each in path.values()):
            for status, response in operation["responses"].items():
                if int(status) >= HTTPStatus.BAD_REQUEST:
                    response["content"] = {MEDIA_TYPE: response["content"]["application/json"]}
        return schema


def _add_operations(api: NinjaAPI, bank: Bank) -> None:
    listed = paginate(CursorPagination, ordering=("pk",))(bank.accounts)
    entries = paginate(CursorPagination, ordering=("-pk",))(bank.entries)
    changed = (400, 403, 404, 409, 412, 422, 503)
    both = ("If-Match", "Idempotency-Key")
    _add(api, "GET /accounts", listed, list[AccountOut], (422,))
    _add(api, "GET /accounts/{pk}", bank.account, AccountOut, (400, 404), headers=("If-None-Match",))
    _add(api, "GET /accounts/{pk}/entries", entries, list[EntryOut], (404, 422))
    _add(api, "PUT /accounts/{pk}", bank.put_account, AccountOut, (*changed, 428), headers=("If-Match",))
    _add(api, "POST /accounts/{pk}/deposit", bank.deposit, AccountOut, changed, headers=both)
    _add(api, "POST /accounts/{pk}/withdraw", bank.withdraw, AccountOut, changed, headers=both)
    _add(api, "POST /transfers", bank.transfer, TransferOut, changed, headers=both)


def _add(
    api: NinjaAPI,
    route: str,
    view: Callable[..., Any],
    answer: Any,
    refusals: Sequence[int],
    *,
    headers: Sequence[str] = (),
) -> None:
    method, path = route.split()
    unmodified = {304: None} if "If-None-Match" in headers else {}
    api.default_router.add_api_operation(
        path,
        [method],
        _function(view),
        response={200: answer, **unmodified, **dict.fromkeys((*refusals, 401, 429), ProblemOut)},
        openapi_extra={"parameters": [_HEADERS[name] for name in headers]} if headers else None,
    )


def _function(view: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method as a function, which can carry the framework's marks."""

    @wraps(view)
    def call(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return call


def _header(name: str, text: str) -> dict[str, Any]:
    return {"in": "header", "name": name, "required": False, "schema": {"type": "string"}, "description": text}


_HEADERS = {
    "If-Match": _header("If-Match", "The ETag that was read: the change is made in that version only (412)."),
    "If-None-Match": _header("If-None-Match", "The ETag that the client has: 304 if it is still the current one."),
    "Idempotency-Key": _header("Idempotency-Key", "Sent again with the same key and body, it is done once."),
}

_PROBLEMS: dict[type[Exception], Callable[[Any], Problem]] = {
    InvalidAmount: lambda error: Problem(status=422, detail=str(error)),
    IdempotencyKeyReused: lambda error: Problem(
        status=422, detail="This Idempotency-Key belongs to another operation on the account."
    ),
    InsufficientFunds: lambda error: Problem(
        status=409,
        title="Insufficient funds",
        detail="The account does not cover the amount.",
        members={"balance": str(error.balance), "overdraft_limit": str(error.overdraft_limit)},
    ),
}


def _answer(problem: Callable[[Any], Problem]) -> Callable[[HttpRequest, Any], HttpResponse]:
    return lambda request, error: problem(error).to_response()
