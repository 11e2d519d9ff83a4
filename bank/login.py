"""The button that logs a visitor of the demo in as its superuser, on this machine alone."""

from __future__ import annotations

from django.contrib.auth import get_user_model, login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from bank.demo_data import SUPERUSER
from django_lockstep.lab import conf

_THIS_MACHINE = frozenset({"127.0.0.1", "::1"})


@require_POST
def log_in_as_admin(request: HttpRequest) -> HttpResponse:
    """Log in without a password, in ``manage.py demo`` and for browsers on the same machine only."""
    if not conf.public() or request.META.get("REMOTE_ADDR") not in _THIS_MACHINE:
        raise PermissionDenied
    user = get_object_or_404(get_user_model()._default_manager, username=SUPERUSER, is_active=True)
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return redirect("admin:index")
