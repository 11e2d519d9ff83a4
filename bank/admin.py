"""The admin of the demo's own tables."""

from django.contrib import admin

from bank.models import Article, Author
from django_lockstep.editing.admin import EditLockAdminMixin


@admin.register(Author)
class AuthorAdmin(EditLockAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    """Read-only while someone edits an article of the author."""

    list_display = ("name",)


@admin.register(Article)
class ArticleAdmin(EditLockAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    """Opening an article checks it out."""

    list_display = ("title", "author")
    list_select_related = ("author",)
    fields = ("title", "text", "author")
