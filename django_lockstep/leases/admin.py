"""The admin: leases and their holders, and an action to release them by force."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from django_lockstep.admin.read_only import ReadOnly
from django_lockstep.leases.models import Lease
from django_lockstep.locking.durations import in_seconds


@admin.register(Lease)
class LeaseAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]
    """Shows leases; users with the permission can release them by force.

    Only holders write rows; ``manage.py purge_leases`` deletes old ones.
    """

    list_display = ("key", "owner", "token", "state", "age", "remaining", "data")
    search_fields = ("key__startswith", "owner__startswith")
    fields = ("key", "owner", "token", "state", "acquired_at", "expires_at", "released_at", "data")
    actions = ("force_release",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Add the times by the database's clock."""
        return super().get_queryset(request).with_times()  # type: ignore[attr-defined,no-any-return]

    @admin.display(description=_("state"))
    def state(self, lease: Any) -> str:
        if lease.under_guard:
            return str(_("under guard"))
        if lease.remaining <= timedelta():
            return str(_("free"))
        return str(_("kept after release") if lease.released_at else _("held"))

    @admin.display(description=_("age"), ordering="-acquired_at")
    def age(self, lease: Any) -> str:
        """Return the time since the last acquire."""
        return in_seconds(lease.age)

    @admin.display(description=_("remaining"), ordering="expires_at")
    def remaining(self, lease: Any) -> str:
        """Return the time until it expires; empty once it has."""
        return in_seconds(lease.remaining) if lease.remaining > timedelta() else ""

    @admin.action(description=_("Force release of selected leases"), permissions=["force_release"])
    def force_release(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Release the selected leases by force, and log each."""
        count = 0
        # Not queryset.db: reads may go to a replica.
        leases = Lease.objects.using(queryset._db)  # type: ignore[attr-defined]
        for lease in queryset.order_by("pk"):
            if leases.filter(pk=lease.pk, token=lease.token).force_release():
                text = gettext("Released by force; was held by %(owner)s, token %(token)s.")
                self.log_change(request, lease, text % {"owner": lease.owner, "token": lease.token})
                count += 1
        text = ngettext("%d lease was released.", "%d leases were released.", count) % count
        self.message_user(request, text, messages.SUCCESS if count else messages.WARNING)

    def has_force_release_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(f"{self.opts.app_label}.force_release_lease")
