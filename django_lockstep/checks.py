"""System checks of settings that the library's apps need.

They are outside those apps, because an app that is not installed registers no checks.
"""

from __future__ import annotations

import sys
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Tags, register
from django.urls import get_resolver

from django_lockstep.locking.checks import url_views

EDITING = "django_lockstep.editing"
LAB = "django_lockstep.lab"
LEASES = "django_lockstep.leases"
IDEMPOTENCY = "django_lockstep.idempotency"


def missing_app(app: str, *, needed_by: str, check_id: str, obj: Any = None) -> list[CheckMessage]:
    """Return an error unless the app is installed."""
    if apps.is_installed(app):
        return []
    message = f"{needed_by} needs {app!r}, which is not installed."
    return [checks.Error(message, hint=f"Add {app!r} to INSTALLED_APPS.", obj=obj, id=check_id)]


@register(Tags.urls)
def check_lab_pages(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report lab pages without the lab's templates."""
    if apps.is_installed(LAB) or not getattr(settings, "ROOT_URLCONF", None):
        return []
    views = url_views(get_resolver().url_patterns)
    if not any(getattr(view, "__module__", "") == f"{LAB}.pages.views" for view in views):
        return []
    return missing_app(LAB, needed_by="The URLconf's lab", check_id="lockstep.E031")


@register
def check_middleware(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report a middleware of an app that is not installed."""
    paths = [path for path in settings.MIDDLEWARE if path.startswith(f"{EDITING}.")]
    return [message for path in paths for message in missing_app(EDITING, needed_by=path, check_id="lockstep.E025")]


@register
def check_runtime_checks(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Report a ``LOCKSTEP_WARN`` that is no mode."""
    mode = getattr(settings, "LOCKSTEP_WARN", None)
    if mode in (None, "raise", "log"):
        return []
    return [checks.Error(f"LOCKSTEP_WARN must be 'raise', 'log' or None, not {mode!r}.", id="lockstep.E005")]


_NEED_TABLES = {
    f"{LEASES}.stores": (LEASES, "lease() on a database", "lockstep.W022"),
    f"{IDEMPOTENCY}.operations": (IDEMPOTENCY, "idempotent()", "lockstep.W023"),
}
"""Modules, with the app that has their table, and what fails without it."""


@register
def check_imported_rooms(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Warn of functions that are imported without their app's table.

    A warning only, because an imported module may never be called.
    """
    return [
        checks.Warning(
            f"{module} is imported, and {app!r} is not installed: every {what} fails.",
            hint=f"Add {app!r} to INSTALLED_APPS.",
            id=check_id,
        )
        for module, (app, what, check_id) in _NEED_TABLES.items()
        if module in sys.modules and not apps.is_installed(app)
    ]
