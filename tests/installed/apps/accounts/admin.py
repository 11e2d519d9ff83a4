"""The models in the admin, as the documentation says."""

from django.apps import apps
from django.contrib import admin

from django_lockstep.admin.versioned import VersionedModelAdmin

from .models import Account, Seat

admin.site.register([Account, Seat], VersionedModelAdmin)

if apps.is_installed("django_lockstep.editing"):
    from django_lockstep.editing.admin import EditLockAdminMixin

    from .models import Book

    @admin.register(Book)
    class BookAdmin(EditLockAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]
        """Checks a book out before it can be changed."""
