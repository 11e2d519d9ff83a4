"""Who edits what, in the admin."""

from django.contrib import admin

from django_lockstep.editing.admin import EditLockAdminMixin

from .models import Book


@admin.register(Book)
class BookAdmin(EditLockAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    """As the documentation says."""
