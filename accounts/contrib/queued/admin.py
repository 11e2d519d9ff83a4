"""The queue for `Account` in the admin, to look at."""

from __future__ import annotations

from django.contrib import admin

from accounts.contrib.queued.model_admin import AnyQueuedChangeAdmin
from accounts.contrib.queued.models import QueuedChange

__all__ = ["QueuedChangeAdmin"]


@admin.register(QueuedChange)
class QueuedChangeAdmin(AnyQueuedChangeAdmin):
    """The pending changes of `Account`, and the results of the others; read-only."""

    class Media:
        css = {"all": ("accounts/admin.css",)}
