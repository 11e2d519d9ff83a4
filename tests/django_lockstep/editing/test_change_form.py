"""The change page of the admin beside everything else that Django's admin has: popups, templates, copies, formats."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpRequest

from django_lockstep.editing import check_in, status_of
from django_lockstep.editing.write_checks import require_editable
from tests.django_lockstep.editing.people import Person, ada, article, bob, change, expire, filled, fresh, held
from tests.django_lockstep.editing.site import ArticleAdmin
from tests.support.factories import client_of_staff
from tests.testapps.press.models import Article, Author, LongRead, Tag

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.editing.urls")]

__all__ = ["ada", "article", "bob"]


@pytest.fixture
def long_read(article: Article) -> LongRead:
    return LongRead.objects.create(title="Old", text="Old", author=article.author)


# What the next admin class makes of the form.


def test_a_field_that_the_next_class_disables_stays_disabled(ada: Person, long_read: LongRead) -> None:
    answer = ada.saves(ada.opens(long_read), long_read, title="New", pages=20)
    assert (answer.status_code, fresh(long_read).title, fresh(long_read).pages) == (302, "Old", 20)


def test_a_field_that_the_next_class_takes_out_stays_out(ada: Person, long_read: LongRead) -> None:
    page = ada.opens(long_read)
    assert 'name="text"' not in page.content.decode()
    ada.saves(page, long_read, text="New")
    assert fresh(long_read).text == "Old"


# Save as new.


def test_a_copy_that_cannot_be_saved_keeps_what_was_typed(ada: Person, long_read: LongRead) -> None:
    refused = ada.saves(ada.opens(long_read), long_read, _saveasnew="1", author="", pages=30)
    text = refused.content.decode()
    assert (refused.status_code, "This field is required" in text, 'value="30"' in text) == (200, True, True)
    assert change(long_read).replace("/change/", "/edit-lock/") in text
    assert status_of(long_read).holder == "ada"
    copied = ada.saves(refused, long_read, _saveasnew="1", author=long_read.author_id, pages=30)
    assert (copied.status_code, set(LongRead.objects.values_list("pages", flat=True))) == (302, {10, 30})
    assert held() == set()


def test_a_copy_of_what_has_a_text_as_key(ada: Person) -> None:
    tag = Tag.objects.create(slug="news")
    refused = ada.saves(ada.opens(tag), tag, _saveasnew="1", slug="much too long to be a slug")
    assert (refused.status_code, "much too long to be a slug" in refused.content.decode()) == (200, True)
    assert ada.saves(refused, tag, _saveasnew="1", slug="other").status_code == 302
    assert set(Tag.objects.values_list("pk", flat=True)) == {"news", "other"}


def test_a_copy_needs_no_check_out_of_the_original(ada: Person, long_read: LongRead) -> None:
    page = ada.opens(long_read)
    expire(page.context["edit_lock"]["result"])
    assert ada.saves(page, long_read, _saveasnew="1", pages=30).status_code == 302
    assert LongRead.objects.filter(pages=30).exists()


# Formats.


def test_numbers_for_the_script_are_written_as_scripts_read_them(ada: Person, article: Article, settings: Any) -> None:
    settings.USE_THOUSAND_SEPARATOR = True
    settings.LOCKSTEP_EDIT_TTL, settings.LOCKSTEP_EDIT_IDLE = 7200, 3600
    text = ada.opens(article).content.decode()
    assert 'data-ttl="7200"' in text
    assert 'data-idle="3600"' in text


# Popups.


def test_an_invalid_form_in_a_popup_keeps_the_check_out_and_a_save_gives_it_back(ada: Person, article: Article) -> None:
    answer = ada.saves(ada.opens(article), article, _popup="1", title="")
    assert "This field is required" in answer.content.decode()
    assert status_of(article).holder == "ada"
    assert "popup_response.js" in ada.saves(answer, article, _popup="1", title="New").content.decode()
    assert (fresh(article).title, held()) == ("New", set())


@pytest.fixture
def poet(db: None) -> Author:
    """Somebody whom others refer to by a code that is nobody's primary key."""
    return Author.objects.create(name="Lovelace", code=-5)


def by_code(author: Author, page: str = "change", field: str = "code") -> str:
    return f"/admin/press/author/{author.code}/{page}/?_to_field={field}&_popup=1"


def test_a_popup_that_names_the_record_by_another_field_checks_it_out(ada: Person, bob: Person, poet: Author) -> None:
    page = ada.client.get(by_code(poet))
    assert f"/admin/press/author/{poet.pk}/edit-lock/" in page.content.decode()
    assert "<strong>ada</strong> has been editing since" in bob.client.get(by_code(poet)).content.decode()
    data = {**filled(page), "name": "New", "_popup": "1", "_to_field": "code"}
    answer = ada.client.post(by_code(poet), data)
    assert (answer.status_code, fresh(poet).name, held()) == (200, "New", set())


def test_deleting_by_another_field_obeys(ada: Person, bob: Person, poet: Author) -> None:
    ada.opens(poet)
    data = {"post": "yes", "_popup": "1", "_to_field": "code"}
    answer = bob.client.post(by_code(poet, "delete"), data, follow=True)
    assert "has been checked out by ada" in answer.content.decode()
    assert Author.objects.filter(pk=poet.pk).exists()
    check_in(poet, ada.user)
    assert bob.client.post(by_code(poet, "delete"), data).status_code == 200
    assert not Author.objects.filter(pk=poet.pk).exists()


@pytest.mark.parametrize("page", ["change", "delete"])
def test_a_field_that_nobody_refers_by_is_refused_as_django_does(ada: Person, poet: Author, page: str) -> None:
    assert ada.client.get(by_code(poet, page, "name")).status_code == 400
    assert held() == set()


# Rows that are gone.


@pytest.fixture
def deleted_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody deletes all articles when it is known which are to be checked, and before they are."""

    def too_late(*args: Any, **kwargs: Any) -> None:
        Article.objects.all().delete()
        require_editable(*args, **kwargs)

    monkeypatch.setattr("django_lockstep.editing.model_admin.require_editable", too_late)


@pytest.mark.usefixtures("deleted_meanwhile")
def test_a_record_that_is_deleted_meanwhile_is_as_django_has_it(ada: Person, article: Article) -> None:
    answer = ada.client.post(f"/admin/press/article/{article.pk}/delete/", {"post": "yes"}, follow=True)
    assert "Perhaps it was deleted?" in answer.content.decode()


def test_an_action_on_what_is_gone_does_nothing(ada: Person, article: Article) -> None:
    data = {"action": "shout", "_selected_action": [article.pk]}
    article.delete()
    answer = ada.client.post("/admin/press/article/", data, follow=True)
    assert "Shouted" in answer.content.decode()


@pytest.mark.usefixtures("deleted_meanwhile")
def test_an_action_passes_over_what_is_deleted_meanwhile(ada: Person, long_read: LongRead) -> None:
    data = {"action": "delete_selected", "_selected_action": [long_read.pk], "post": "yes"}
    assert ada.client.post("/admin/press/longread/", data).status_code == 302


# Templates of the project's own.

OWN = '{% extends "admin/change_form.html" %}{% block form_top %}<p>Mind the house style.</p>{% endblock %}'

Install = Callable[[str], None]


@pytest.fixture
def install(settings: Any) -> Install:
    """Give the project a template of this name."""

    def install(name: str) -> None:
        (engine,) = copy.deepcopy(settings.TEMPLATES)
        first = ("django.template.loaders.locmem.Loader", {name: OWN})
        engine["OPTIONS"]["loaders"] = [first, "django.template.loaders.app_directories.Loader"]
        settings.TEMPLATES = [{**engine, "APP_DIRS": False}]

    return install


def assert_both_are_there(page: Any) -> None:
    text = page.content.decode()
    assert "Mind the house style." in text
    assert f'name="_edit_token" value="{page.context["edit_lock"]["token"]}"' in text


@pytest.mark.parametrize("folder", ["press/article/", "press/", ""])
def test_the_projects_template_has_the_token(ada: Person, article: Article, install: Install, folder: str) -> None:
    install(f"admin/{folder}change_form.html")
    page = ada.opens(article)
    assert_both_are_there(page)
    assert_both_are_there(ada.saves(page, article, title=""))
    assert ada.saves(page, article, title="New").status_code == 302


def test_so_is_the_template_that_the_class_names(
    ada: Person, bob: Person, article: Article, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("press/form.html")
    monkeypatch.setattr(ArticleAdmin, "change_form_template", "press/form.html", raising=False)
    assert_both_are_there(ada.opens(article))
    text = bob.opens(article).content.decode()
    assert "Mind the house style." in text
    assert "<strong>ada</strong> has been editing since" in text
    assert "Mind the house style." in bob.client.get("/admin/press/article/add/").content.decode()


def test_so_is_the_template_that_the_class_chooses_for_a_request(
    ada: Person, article: Article, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen(self: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        response = super(ArticleAdmin, self).render_change_form(request, *args, **kwargs)
        response.template_name = "press/form.html"
        return response

    install("press/form.html")
    monkeypatch.setattr(ArticleAdmin, "render_change_form", chosen, raising=False)
    assert_both_are_there(ada.opens(article))


@pytest.mark.filterwarnings("default:Overriding get_action_choices")  # until unfold 0.91 knows Django 6.1
def test_so_is_the_template_of_unfold(ada: Person, bob: Person, article: Article, settings: Any) -> None:
    settings.INSTALLED_APPS = ["unfold.apps.BasicAppConfig", *settings.INSTALLED_APPS]
    settings.TEMPLATES = copy.deepcopy(settings.TEMPLATES)  # whose loaders remember where they looked
    settings.ROOT_URLCONF = "tests.django_lockstep.editing.unfold_urls"
    page = ada.opens(article)
    text = page.content.decode()
    assert "unfold" in text
    assert f'name="_edit_token" value="{page.context["edit_lock"]["token"]}"' in text
    assert "<strong>ada</strong> has been editing since" in bob.opens(article).content.decode()
    assert ada.saves(page, article, title="New").status_code == 302


def test_a_reader_sees_the_projects_template_and_checks_out_nothing(article: Article, install: Install) -> None:
    install("admin/press/article/change_form.html")
    assert "Mind the house style." in client_of_staff("view_article").get(change(article)).content.decode()
    assert held() == set()
