"""Builds the API: its operations, authentication, response schemas and error responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from django.apps import apps
from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.pagination import paginate
from ninja.throttling import BaseThrottle

from accounts.api.operations import AccountOperations
from accounts.api.pages import Pages
from accounts.api.schemas import AccountOut, EntryOut, TransferOut
from accounts.api.tokens import TokenUser
from accounts.errors import IdempotencyKeyReused, InsufficientFunds, InvalidAmount
from accounts.models import AbstractAccount
from django_lockstep.contrib.logins import SessionUser
from django_lockstep.editing.ninja_api import ProblemAPI, ProblemOut
from django_lockstep.http import Problem

__all__ = ["account_api"]


def account_api(
    model: type[AbstractAccount] | None = None,
    *,
    auth: Sequence[Callable[..., Any]] | None = None,
    throttle: Sequence[BaseThrottle] = (),
    namespace: str = "accounts-api",
) -> NinjaAPI:
    """Return the API of the accounts, whose ``urls`` a project includes.

    ``model`` is the account model, by default ``accounts.Account``. ``auth`` is a list of authenticators, by default
    tokens (`make_token`) and sessions; without the app ``accounts``, which has the table of tokens, only sessions. What
    an authenticator returns may have ``scopes``, as a token has: a string with some of `accounts.tokens.SCOPES`.
    ``throttle`` takes django-ninja's throttles. Every error response is problem details (RFC 9457), also for unknown
    paths below the prefix.
    """
    if model is None:
        from accounts.models import Account

        model = Account
    api = ProblemAPI(
        title="Accounts",
        urls_namespace=namespace,
        auth=list(auth) if auth is not None else _default_auth(),
        throttle=list(throttle),
    )
    _add_operations(api, AccountOperations(model))
    for kind, problem in _PROBLEMS.items():
        api.add_exception_handler(kind, _answer(problem))
    return api


def _default_auth() -> list[Callable[..., Any]]:
    return [*([TokenUser()] if apps.is_installed("accounts") else ()), SessionUser()]


def _add_operations(api: NinjaAPI, operations: AccountOperations) -> None:
    changed, both = (409, 412), ("If-Match", "If-None-Match", "Idempotency-Key")
    accounts = paginate(Pages, ordering=("pk",))(operations.accounts)
    entries = paginate(Pages, ordering=("-pk",))(operations.entries)
    _add(api, "GET /accounts", accounts, list[AccountOut])
    _add(api, "GET /accounts/{pk}", operations.account, AccountOut, headers=("If-None-Match",))
    _add(api, "GET /accounts/{pk}/entries", entries, list[EntryOut])
    _add(api, "PUT /accounts/{pk}", operations.put_account, AccountOut, (*changed, 428), headers=("If-Match!",))
    _add(api, "POST /accounts/{pk}/deposit", operations.deposit, AccountOut, changed, headers=both)
    _add(api, "POST /accounts/{pk}/withdraw", operations.withdraw, AccountOut, changed, headers=both)
    _add(api, "POST /transfers", operations.transfer, TransferOut, changed, headers=both)


def _add(
    api: NinjaAPI,
    route: str,
    view: Callable[..., Any],
    answer: Any,
    refusals: Sequence[int] = (),
    *,
    headers: Sequence[str] = (),
) -> None:
    method, path = route.split()
    unmodified = {304: None} if method == "GET" and headers else {}
    api.default_router.add_api_operation(
        path,
        [method],
        _function(view),
        response={200: answer, **unmodified, **dict.fromkeys(refusals, ProblemOut)},
        openapi_extra={"parameters": [_HEADERS[name] for name in headers]} if headers else None,
    )


def _function(view: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the method in a function: the framework sets attributes on it, which a bound method does not allow."""

    @wraps(view)
    def call(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return call


def _header(name: str, text: str, *, pattern: str, example: str, required: bool = False) -> dict[str, Any]:
    schema = {"type": "string", "pattern": f"^(?:{pattern})$", "examples": [example]}
    return {"in": "header", "name": name, "required": required, "schema": schema, "description": text}


_TAG = '(?:W/)?"[!#-~]*"'
_TAGS = rf"\*|{_TAG}(?: *, *{_TAG})*"
_IF_MATCH = "The ETag that was read: the change is made only if the account still has that version (else 412)."

_HEADERS = {
    "If-Match": _header("If-Match", _IF_MATCH, pattern=_TAGS, example='"1.1"'),
    "If-Match!": _header("If-Match", _IF_MATCH, pattern=_TAGS, example='"1.1"', required=True),
    "If-None-Match": _header(
        "If-None-Match",
        "The ETag that the client has. If it is the current one, GET returns 304, and a change 412.",
        pattern=_TAGS,
        example='"1.0"',
    ),
    "Idempotency-Key": _header(
        "Idempotency-Key",
        "A request that is repeated with the same key and body is performed only once.",
        pattern=r'[!#-~](?:[ !#-~]{0,253}[!#-~])?|"(?:[ !#-\[\]-~]|\\["\\]){1,255}"',
        example="order-1017",
    ),
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
