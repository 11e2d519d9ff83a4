"""The same admin class with django-unfold's."""

from django.urls import path
from unfold.admin import ModelAdmin
from unfold.sites import UnfoldAdminSite

from tests.django_lockstep.editing.site import ArticleAdmin
from tests.testapps.press.models import Article


class UnfoldArticleAdmin(ArticleAdmin, ModelAdmin):  # type: ignore[misc]
    pass


site = UnfoldAdminSite(name="admin")
site.register(Article, UnfoldArticleAdmin)

urlpatterns = [path("admin/", site.urls)]
