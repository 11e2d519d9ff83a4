"""Admin classes with edit locks and versions: the mixin before `VersionedModelAdmin`, and after it."""

from django.contrib import admin
from django.urls import path

from django_lockstep.admin import VersionedModelAdmin
from django_lockstep.editing.admin import EditLockAdminMixin
from tests.testapps.press.models import Article, LongRead


class MixinFirst(EditLockAdminMixin, VersionedModelAdmin):
    fields = ("title", "text")
    list_display = ("id", "title")
    list_editable = ("title",)


class MixinLast(VersionedModelAdmin, EditLockAdminMixin):
    fields = ("title", "text")
    list_display = ("id", "title")
    list_editable = ("title",)


site = admin.AdminSite(name="admin")
site.register(Article, MixinFirst)
site.register(LongRead, MixinLast)

urlpatterns = [path("admin/", site.urls)]
