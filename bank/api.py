"""The demo's HTTP API, for the session of a user who has logged in: an account with its ETag, and its changes.

``If-Match`` chooses the kind of locking: without it a change waits for the row (pessimistic), with it the change is
made only in that version (optimistic). ``Idempotency-Key`` is kept with the entry, in the transaction that moves the
money.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.utils.translation import gettext as _
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_POST, require_safe

from accounts.amounts import parse_amount
from accounts.errors import IdempotencyKeyReused, InsufficientFunds, InvalidAmount
from accounts.models import Account
from django_lockstep.http import PreconditionError, PreconditionFailed, Problem, etag, not_modified, problem_of
from django_lockstep.http.preconditions import check_preconditions
from django_lockstep.locking import lock_rows

_LONGEST_WAIT = 5
"""Seconds that a request waits for a row: a session that keeps one must not block the server's threads."""


class _Refusal(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.problem = Problem(status=status, detail=detail)


def _operation(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Require a login, and answer refusals with problem details (RFC 9457)."""

    @wraps(view)
    def call(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return Problem(status=403, detail=_("Log in first.")).to_response()
        try:
            return view(request, *args, **kwargs)
        except (_Refusal, Http404, InvalidAmount, InsufficientFunds, IdempotencyKeyReused, PreconditionError) as error:
            return _problem(error).to_response()

    return call


def _problem(error: Exception) -> Problem:
    if isinstance(error, _Refusal):
        return error.problem
    if isinstance(error, Http404):
        return Problem(status=404)
    if isinstance(error, InsufficientFunds):
        funds = {"balance": str(error.balance), "overdraft_limit": str(error.overdraft_limit)}
        return Problem(status=409, title=_("Insufficient funds"), members=funds)
    return problem_of(error) or Problem(status=422, detail=str(error))


@_operation
@require_safe
@cache_control(private=True, no_cache=True)
def account(request: HttpRequest, pk: int) -> HttpResponse:
    """Return the account; 304 if the client has this version."""
    row = _find(request, pk, "view")
    if not_modified(request, row):
        return HttpResponse(status=304, headers={"ETag": etag(row)})
    return _answer(row)


@_operation
@require_POST
def change(request: HttpRequest, pk: int, kind: str) -> HttpResponse:
    """Deposit or withdraw the amount."""
    row, key = _find(request, pk, kind), _idempotency_key(request)
    amount = parse_amount(_body(request, "amount")["amount"])
    if "If-Match" not in request.headers:
        method = Account.deposit if kind == "deposit" else Account.withdraw
        return _answer(method(row.pk, amount, idempotency_key=key, timeout=_LONGEST_WAIT))
    # The client decided on a version, so the write must not wait and then use a newer one.
    _check(request, row, key)
    attempt = row.try_deposit if kind == "deposit" else row.try_withdraw
    if not attempt(amount, idempotency_key=key):
        raise PreconditionFailed(etag=etag(_find(request, pk, kind)))
    return _answer(row)


@_operation
@require_POST
def transfer(request: HttpRequest) -> HttpResponse:
    """Move the amount from an account of the user to any other; ``If-Match`` is about the source."""
    body, key = _body(request, "source", "target", "amount"), _idempotency_key(request)
    source, target, amount = _key(body["source"]), _key(body["target"]), parse_amount(body["amount"])
    _find(request, source, "transfer")
    if source == target:
        raise _Refusal(422, _("The target must be another account."))
    with transaction.atomic():
        try:
            rows = lock_rows(Account, [source, target], timeout=_LONGEST_WAIT)
        except ObjectDoesNotExist as error:
            raise _Refusal(422, _("There is no such target.")) from error
        # Under the locks: no other transaction can change the source between this check and the transfer.
        _check(request, next(row for row in rows if row.pk == source), key)
        row, _target = Account.transfer(source, target, amount, idempotency_key=key)
    return _answer(row)


def _answer(row: Account) -> HttpResponse:
    data = {"id": row.pk, "balance": str(row.balance), "overdraft_limit": str(row.overdraft_limit)}
    return JsonResponse({**data, "version": row.version}, headers={"ETag": etag(row)})


def _find(request: HttpRequest, pk: int, kind: str) -> Account:
    """Return the account if it is the user's own, or the user is staff with the permissions to view and to do this.

    404 otherwise, so that accounts of others cannot be probed.
    """
    row = Account.objects.filter(pk=pk).first()
    user: Any = request.user
    may = user.is_staff and user.has_perms(["accounts.view_account", f"accounts.{kind}_account"])
    if row is None or not (may or row.user_id == user.pk):
        raise Http404
    return row


def _check(request: HttpRequest, row: Account, key: str | None) -> None:
    """Check the preconditions, unless the key was used before: a repeated request gets the first answer again."""
    if key is None or not row.entries.filter(idempotency_key=key).exists():
        check_preconditions(request, row)


def _body(request: HttpRequest, *names: str) -> dict[str, str]:
    """Return the JSON object. Money and keys are strings, because most clients parse JSON numbers as floats."""
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise _Refusal(400, _("The body is not JSON.")) from error
    if not isinstance(body, dict) or {*body} != {*names} or not all(isinstance(value, str) for value in body.values()):
        strings = {"names": ", ".join(names)}
        raise _Refusal(422, _("The body must be a JSON object with the strings %(names)s.") % strings)
    return body


def _key(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise _Refusal(422, _("An account is named by its number."))
    return int(text)


def _idempotency_key(request: HttpRequest) -> str | None:
    """Return the key, with or without the quotes that the IETF's draft requires; None without the header."""
    header = request.headers.get("Idempotency-Key")
    if header is None:
        return None
    key = header[1:-1] if len(header) > 1 and header[0] == header[-1] == '"' else header
    if not (0 < len(key) <= 255 and key.isascii() and key.isprintable()):
        raise _Refusal(400, _("Idempotency-Key must have 1 to 255 printable ASCII characters."))
    return key


urlpatterns = [
    path("accounts/<int:pk>", account, name="account"),
    path("accounts/<int:pk>/deposit", change, {"kind": "deposit"}),
    path("accounts/<int:pk>/withdraw", change, {"kind": "withdraw"}),
    path("transfers", transfer),
]
