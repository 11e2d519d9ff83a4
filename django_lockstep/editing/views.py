"""The status page: all current check-outs, updated live."""

from __future__ import annotations

from django.apps import apps
from django.contrib.auth.decorators import login_required, permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from django_lockstep.editing.clock import ClockTimestamp
from django_lockstep.editing.models import CheckOut


@login_required
@permission_required("lockstep_editing.view_editlock", raise_exception=True)
def status_page(request: HttpRequest) -> HttpResponse:
    """Show all check-outs; htmx, which polls every two seconds, gets only their table."""
    # Expired rows that no purge has ended yet are not shown.
    rows = CheckOut.objects.filter(ended_at=None, expires_at__gt=ClockTimestamp())
    context = {
        "check_outs": rows.select_related("editor").prefetch_related("locks").order_by("since"),
        "live": apps.is_installed("django_htmx"),
    }
    part = request.headers.get("HX-Request") == "true"
    return render(request, "lockstep_editing/_status.html" if part else "lockstep_editing/status.html", context)
