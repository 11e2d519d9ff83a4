"""The button that makes one session wait for another, so that the page of locks has something to show."""

from __future__ import annotations

import threading
from typing import Any

from django.contrib.auth.decorators import permission_required
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from accounts.models import Account

SECONDS = 10.0
"""How long the first session keeps its row lock."""
_one_at_a_time = threading.Lock()
_cut_short = threading.Event()
"""Ends the wait before the time is over."""


@require_POST
@permission_required("lockstep_monitor.view_lock", raise_exception=True)
def make_one_wait(request: HttpRequest) -> HttpResponse:
    """Let a session lock an account and a second one wait for it, then show who waits; a second click starts none."""
    account = Account.objects.order_by("pk").last()
    if account is not None and _one_at_a_time.acquire(blocking=False):
        locked = threading.Event()
        threading.Thread(target=_hold, args=(account.pk, locked), daemon=True).start()
        threading.Thread(target=_wait, args=(account.pk, locked), daemon=True).start()
    return redirect("admin:lockstep_monitor_lock_changelist")


def _hold(pk: Any, locked: threading.Event) -> None:
    """Lock the row and do nothing for a while, as code does that calls another service with a lock in its hands."""
    try:
        with transaction.atomic():
            Account.objects.select_for_update(no_key=True).get(pk=pk)
            locked.set()
            _cut_short.wait(SECONDS)
    finally:
        locked.set()
        connections.close_all()
        _one_at_a_time.release()


def _wait(pk: Any, locked: threading.Event) -> None:
    try:
        locked.wait()
        with transaction.atomic():
            Account.objects.select_for_update(no_key=True).get(pk=pk)
    finally:
        connections.close_all()
