"""An admin of several people."""

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest

from django_lockstep.editing.admin import CheckOutAdmin, EditLockAdmin, EditLockAdminMixin
from django_lockstep.editing.models import CheckOut, EditLock
from tests.testapps.press.models import Article, Author, City, Comment, LongRead, Review, Tag

site = admin.AdminSite(name="admin")


class CommentInline(admin.TabularInline):  # type: ignore[type-arg]
    model = Comment
    fields = ("text",)
    extra = 1


@admin.action(description="Shout")
def shout(modeladmin: Any, request: HttpRequest, queryset: Any) -> None:
    for article in queryset:
        queryset.filter(pk=article.pk).update(title=article.title.upper())
    modeladmin.message_user(request, "Shouted", messages.SUCCESS)


@admin.action(description="Count")
def count(modeladmin: Any, request: HttpRequest, queryset: Any) -> None:
    modeladmin.message_user(request, f"Counted {queryset.count()}")


@admin.register(Article, site=site)
class ArticleAdmin(EditLockAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("id", "title", "author")
    list_editable = ("title",)
    fields = ("title", "text", "author")
    inlines = (CommentInline,)
    actions = (shout, count)
    edit_lock_free_actions = ("count",)


class TitleFixed(admin.ModelAdmin):  # type: ignore[type-arg]
    """Restricts its form by what it does to the form's fields."""

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change=change, **kwargs)
        form.base_fields["title"].disabled = True
        form.base_fields.pop("text", None)
        return form


@admin.register(LongRead, site=site)
class LongReadAdmin(EditLockAdminMixin, TitleFixed):
    """Can be saved as a new one."""

    save_as = True
    exclude = ("tags",)


@admin.register(Author, site=site)
class AuthorAdmin(EditLockAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    fields = ("name",)


@admin.register(Review, site=site)
class ReviewAdmin(EditLockAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    """Only tells."""

    edit_lock_mode = "presence"
    fields = ("text", "author")


@admin.register(Tag, site=site)
class TagAdmin(EditLockAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    """Of a model that knows nothing of edit locks."""

    save_as = True


@admin.register(City, site=site)
class CityAdmin(EditLockAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    """Refers to authors by their code."""


site.register(EditLock, EditLockAdmin)
site.register(CheckOut, CheckOutAdmin)
