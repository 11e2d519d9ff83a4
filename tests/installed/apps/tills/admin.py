"""The queue of the project's own in the admin."""

from django.contrib import admin

from accounts.contrib.queued.model_admin import AnyQueuedChangeAdmin

from .models import TillChange

admin.site.register(TillChange, AnyQueuedChangeAdmin)
