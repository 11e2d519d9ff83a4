"""The current locks and waits, as a page of the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import DEFAULT_DB_ALIAS, NotSupportedError
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _

from django_lockstep.lab.models import Lock
from django_lockstep.lab.report import lock_report, text

__all__ = ["LockAdmin"]

SECONDS = 3
"""Seconds between two refreshes of the page."""


@admin.register(Lock)
class LockAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Shows what `manage.py lock_report` prints, refreshed regularly, to users with ``view_lock``."""

    def get_urls(self) -> list[URLPattern]:
        # Only the list: there are no rows to open, add or delete.
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        return [path("", self.admin_site.admin_view(self.changelist_view), name=name)]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        """Show the locks of the default database; ``?paused`` stops the refreshing."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        request.current_app = self.admin_site.name
        try:
            headline, _newline, details = text(lock_report(DEFAULT_DB_ALIAS), width=160).partition("\n")
        except NotSupportedError as error:
            headline, details = str(error), ""
        context = {
            **self.admin_site.each_context(request),
            "title": _("Who waits for whom"),
            "opts": self.opts,
            "headline": headline,
            "details": details.strip("\n"),
            "seconds": None if "paused" in request.GET else SECONDS,
            **(extra_context or {}),
        }
        return TemplateResponse(request, "lockstep_lab/locks.html", context)
