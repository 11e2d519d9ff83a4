"""A form of the demo that one user at a time edits: the accounts' overdraft limits, locked over HTTP."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required, permission_required
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.forms import modelformset_factory
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from accounts.models import Account
from django_lockstep.editing import EditLocked, EditLockLost, check_in, require_editable, status_of, writing

_SHOWN = 20
_Limits: Any = modelformset_factory(Account, fields=["overdraft_limit"], extra=0)


@login_required
@permission_required("accounts.change_account", raise_exception=True)
def overdrafts(request: HttpRequest) -> HttpResponse:
    """Show the form; save it for the user who has checked out the table of accounts."""
    shown = Account.objects.select_related("user").order_by("pk")[:_SHOWN]
    if request.method != "POST":
        return _page(request, _Limits(queryset=shown))
    limits, token = _Limits(request.POST, queryset=shown), request.POST.get("token", "")
    try:
        if limits.is_valid():
            _save(limits, request.user, token)
            return redirect("overdrafts")
    except (EditLocked, EditLockLost, PermissionDenied) as error:
        return _page(request, limits, refusal=str(error), status=409)
    return _page(request, limits, token=token)


def _save(limits: Any, editor: Any, token: str) -> None:
    """Save and check in; both or nothing."""
    with transaction.atomic(), writing(editor, token=token):
        # Accounts themselves ask no edit locks, because a deposit is not an edit. The guard that this takes keeps
        # others from checking out until the end of the transaction, so that the check-in may come first.
        require_editable(Account)
        check_in(Account, editor, token=token)
        limits.save()


def _page(request: HttpRequest, limits: Any, *, refusal: str = "", token: str = "", status: int = 200) -> HttpResponse:
    context = {"limits": limits, "refusal": refusal, "token": token, "edit_lock": status_of(Account)}
    return render(request, "bank/overdrafts.html", context, status=status)
