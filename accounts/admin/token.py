"""API tokens in the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from accounts.models import ApiToken

__all__ = ["ApiTokenAdmin"]


@admin.register(ApiToken)
class ApiTokenAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Shows tokens and revokes them; only ``manage.py api_token`` creates them, because they can be shown only once.

    They can be deleted, because otherwise their users could not be.
    """

    list_display = ("pk", "user", "name", "scopes", "created_at", "expires_at", "last_used_at", "revoked_at")
    list_filter = ("revoked_at", "expires_at", "last_used_at")
    list_select_related = ("user",)
    fields = ("user", "name", "scopes", "created_at", "expires_at", "last_used_at", "revoked_at")
    actions = ("revoke",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        """Whether the user may revoke the tokens of all users."""
        return request.user.has_perm(f"{self.opts.app_label}.revoke_apitoken")

    @admin.action(description=_("Revoke selected tokens"), permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Revoke the selected tokens, and log each one that was valid."""
        revoked = [token for token in queryset.order_by("pk") if token.revoke()]
        for token in revoked:
            self.log_change(request, token, gettext("Revoked."))
        text = ngettext("%(count)d token was revoked.", "%(count)d tokens were revoked.", len(revoked))
        self.message_user(request, text % {"count": len(revoked)}, messages.SUCCESS)
