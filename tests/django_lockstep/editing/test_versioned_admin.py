"""`EditLockAdminMixin` with `VersionedModelAdmin`: both work, in either order of the bases."""

from typing import Any

import pytest
from django.contrib import admin
from django.urls import path

from django_lockstep.admin import VersionedModelAdmin
from django_lockstep.editing import status_of, writing
from django_lockstep.editing.admin import EditLockAdminMixin
from tests.django_lockstep.admin.browsing import choose, fill, url
from tests.django_lockstep.editing.people import Person, ada, bob, fresh
from tests.testapps.press.models import Article, Author, LongRead

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

__all__ = ["ada", "bob"]


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


@pytest.fixture(params=[Article, LongRead], ids=["mixin first", "mixin last"])
def article(request: pytest.FixtureRequest, db: None) -> Any:
    return request.param.objects.create(title="Old", author=Author.objects.create())


def change_by_code(article: Any, person: Person, title: str) -> None:
    """Change the article as a program does that writes in the editor's name."""
    row = fresh(article)
    row.title = title
    with writing(person.user):
        row.save()


def test_opening_checks_out_and_a_save_checks_in(ada: Person, article: Any) -> None:
    page = ada.opens(article)
    assert status_of(article).holder == "ada"
    assert ada.client.post(url(article), fill(page, title="New")).status_code == 302
    assert (fresh(article).title, status_of(article).holder) == ("New", None)


def test_a_change_by_other_code_gets_the_conflict_page(ada: Person, article: Any) -> None:
    page = ada.opens(article)
    change_by_code(article, ada, "By code")
    conflict = ada.client.post(url(article), fill(page, title="Typed"))
    assert (conflict.status_code, fresh(article).title) == (409, "By code")
    assert status_of(article).holder == "ada"
    assert ada.client.post(url(article), choose(conflict, "mine", "title")).status_code == 302
    assert (fresh(article).title, status_of(article).holder) == ("Typed", None)


@pytest.mark.parametrize("path", ["delete", "list"])
def test_a_second_user_cannot_delete(ada: Person, bob: Person, article: Any, path: str) -> None:
    page = bob.client.get(url(article, path), follow=True)
    target = page.request["PATH_INFO"] + "?" + page.request["QUERY_STRING"]
    ada.opens(article)
    data = fill(page, post="yes", action="delete_selected", _selected_action=[article.pk])
    data.pop("_save", None)
    answer = bob.client.post(target, data, follow=True)
    assert "has been checked out by ada" in answer.content.decode()
    assert type(article).objects.filter(pk=article.pk).exists()


def test_a_second_user_cannot_save_a_row_of_the_list(ada: Person, bob: Person, article: Any) -> None:
    page = bob.client.get(url(article, "list"))
    ada.opens(article)
    answer = bob.client.post(url(article, "list"), fill(page, form__0__title="Bob's", _save="Save"))
    assert "has been checked out by ada" in answer.content.decode()
    assert fresh(article).title == "Old"


def test_the_mixin_after_djangos_class_is_an_error() -> None:
    with pytest.raises(TypeError, match="consistent method resolution"):
        type("Late", (admin.ModelAdmin, EditLockAdminMixin), {})
