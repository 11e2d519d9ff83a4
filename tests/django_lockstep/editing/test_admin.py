"""The admin of editing, without a browser."""

from typing import Any

import pytest
from django.test import Client

from django_lockstep.editing import announce, check_out, status_of, take_over
from django_lockstep.editing.models import CheckOut
from tests.django_lockstep.editing.people import Person, ada, article, bob, change, expire, fresh, held
from tests.testapps.press.models import Article, Comment, Review, Tag

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.editing.urls")]

__all__ = ["ada", "article", "bob"]


def test_who_comes_later_sees_it_read_only(ada: Person, bob: Person, article: Article) -> None:
    ada.opens(article)
    text = bob.opens(article).content.decode()
    assert "<strong>ada</strong> has been editing since" in text
    assert "Ask them to finish, then reload this page." in text
    assert 'name="title"' not in text
    assert 'name="_save"' not in text
    assert "deletelink" not in text
    assert "Take over" not in text


def test_a_save_without_a_check_out_is_refused(ada: Person, bob: Person, article: Article) -> None:
    page = bob.opens(article)
    CheckOut.objects.all().delete()
    ada.opens(article)
    answer = bob.saves(page, article, title="Bob's")
    assert (answer.status_code, fresh(article).title) == (423, "Old")
    text = answer.content.decode()
    assert 'value="Bob&#x27;s"' in text
    assert "<strong>ada</strong> has been editing since" in text


def test_a_late_save_is_refused_keeps_the_text_and_can_be_repeated(ada: Person, article: Article) -> None:
    page = ada.opens(article)
    expire(page.context["edit_lock"]["result"])
    refused = ada.saves(page, article, title="Late")
    text = refused.content.decode()
    assert (refused.status_code, fresh(article).title) == (409, "Old")
    assert "expired at" in text
    assert 'value="Late"' in text
    assert "<td>Old</td>" in text
    assert ada.saves(refused, article, title="Late").status_code == 302
    assert fresh(article).title == "Late"


def test_taking_over_from_the_read_only_page(ada: Person, article: Article) -> None:
    ada.opens(article)
    chief = Person("chief", "take_over_editlock")
    assert "Take over" in chief.opens(article).content.decode()
    assert chief.client.post(change(article), {"_take_over": "1"}).status_code == 302
    page = chief.opens(article)
    assert "Checked out by you until" in page.content.decode()
    assert chief.saves(page, article, title="Chief's").status_code == 302
    assert fresh(article).title == "Chief's"


def test_taking_over_with_text_typed_keeps_it(ada: Person, article: Article) -> None:
    chief = Person("chief", "take_over_editlock")
    page = chief.opens(article)
    take_over(article, Person("boss", "take_over_editlock").user)
    refused = chief.saves(page, article, title="Typed")
    assert refused.status_code in (409, 423)
    assert "was taken over by boss" in refused.content.decode()
    assert 'value="Typed"' in refused.content.decode()
    shown = chief.saves(refused, article, title="Typed", _take_over="1")
    assert (shown.status_code, fresh(article).title) == (200, "Old")
    assert 'value="Typed"' in shown.content.decode()
    assert "You have taken over this record" in shown.content.decode()
    assert chief.saves(shown, article, title="Typed").status_code == 302


def test_taking_over_needs_the_permission(ada: Person, bob: Person, article: Article) -> None:
    ada.opens(article)
    bob.client.post(change(article), {"_take_over": "1"})
    assert status_of(article).holder == "ada"
    assert "needs the permission lockstep_editing.take_over_editlock" in bob.opens(article).content.decode()


def test_the_second_tab_of_one_person_can_go_on(ada: Person, article: Article) -> None:
    first = ada.opens(article)
    assert "You have had this open in another tab" in ada.opens(article).content.decode()
    ada.client.post(change(article), {"_take_over": "1"})
    second = ada.opens(article)
    assert ada.saves(first, article, title="First").status_code in (409, 423)
    assert ada.saves(second, article, title="Second").status_code in (302, 409)


def test_what_ones_own_editing_needs_unchanged_says_so(ada: Person, article: Article) -> None:
    ada.opens(article)
    text = ada.opens(article.author).content.decode()
    assert f"You have been editing press.article:{article.pk} since" in text
    assert "data-other-tab" not in text


def test_a_page_that_nobody_looks_at_checks_out_nothing(ada: Person, article: Article) -> None:
    assert ada.client.head(change(article)).status_code == 200
    assert ada.client.get(change(article), headers={"Sec-Purpose": "prefetch"}).status_code == 503
    assert held() == set()


def test_a_refused_write_refuses_the_whole_save(ada: Person, article: Article, monkeypatch: pytest.MonkeyPatch) -> None:
    def save_both(self: Any, request: Any, obj: Article, form: Any, change: bool) -> None:
        obj.save()
        obj.author.save()  # locked: the article refers to it

    monkeypatch.setattr("tests.django_lockstep.editing.site.ArticleAdmin.save_model", save_both, raising=False)
    page = ada.opens(article)
    refused = ada.saves(page, article, title="New")
    assert (refused.status_code, fresh(article).title) == (423, "Old")
    assert 'value="New"' in refused.content.decode()
    monkeypatch.undo()
    assert ada.saves(refused, article, title="New").status_code == 302


# What the page's script calls.


def calls(person: Person, instance: Any, action: str, token: str) -> Any:
    path = change(instance).replace("/change/", "/edit-lock/")
    return person.client.post(path, {"action": action, "_edit_token": token})


def test_the_script_extends_and_gives_back(ada: Person, article: Article) -> None:
    lock = ada.opens(article).context["edit_lock"]
    longer = calls(ada, article, "extend", lock["token"])
    assert longer.status_code == 200
    assert longer.json()["expires_at"] > lock["result"].expires_at.isoformat()
    assert calls(ada, article, "check-in", lock["token"]).status_code == 200
    assert held() == set()
    assert calls(ada, article, "extend", lock["token"]).status_code == 409


def test_the_script_is_refused_where_it_is_wrong(ada: Person, bob: Person, article: Article) -> None:
    token = ada.opens(article).context["edit_lock"]["token"]
    assert calls(bob, article, "extend", token).status_code == 403
    assert calls(ada, article, "extend", "wrong").status_code == 403
    assert calls(ada, article, "delete", token).status_code == 404
    assert Client().post(change(article).replace("/change/", "/edit-lock/")).status_code == 302


# The list, actions, inlines, deleting.

LIST = "/admin/press/article/"


def rows(*articles: Article, **titles: str) -> dict[str, Any]:
    data: dict[str, Any] = {"form-TOTAL_FORMS": len(articles), "form-INITIAL_FORMS": len(articles), "_save": "Save"}
    for number, row in enumerate(sorted(articles, key=lambda article: -article.pk)):
        data |= {f"form-{number}-id": row.pk, f"form-{number}-title": titles.get(row.title, row.title)}
    return data


def test_the_list_shows_who_has_what(ada: Person, bob: Person, article: Article) -> None:
    assert "edit-lock-holder" not in bob.client.get(LIST).content.decode()
    ada.opens(article)
    assert "</span> ada</span>" in bob.client.get(LIST).content.decode()
    ada.opens(Review.objects.create(author=article.author))
    text = bob.client.get("/admin/press/review/").content.decode()
    assert ("ada (viewing)" in text, "edit-lock-icon" in text) == (True, False)


def test_list_editable_obeys(ada: Person, bob: Person, article: Article) -> None:
    free = Article.objects.create(title="Free", author=article.author)
    ada.opens(article)
    refused = bob.client.post(LIST, rows(article, free, Old="Bob's", Free="Bob's too"))
    assert "has been checked out by ada" in refused.content.decode()
    assert 'value="Bob&#x27;s"' in refused.content.decode()
    assert {fresh(article).title, fresh(free).title} == {"Old", "Free"}
    bob.client.post(LIST, rows(article, free, Free="Bob's too"))
    assert fresh(free).title == "Bob's too"


@pytest.mark.parametrize(("action", "said"), [("shout", "has been checked out by ada"), ("count", "Counted 1")])
def test_actions_obey_if_they_change_rows(ada: Person, bob: Person, article: Article, action: str, said: str) -> None:
    ada.opens(article)
    data = {"action": action, "_selected_action": [article.pk]}
    assert said in bob.client.post(LIST, data, follow=True).content.decode()
    assert fresh(article).title == "Old"


def test_an_action_on_what_is_free_runs(bob: Person, article: Article) -> None:
    bob.client.post(LIST, {"action": "shout", "_selected_action": [article.pk]})
    assert fresh(article).title == "OLD"


@pytest.mark.parametrize("path", ["{pk}/delete/", ""])
def test_deleting_obeys(ada: Person, bob: Person, article: Article, path: str) -> None:
    ada.opens(article)
    data = {"post": "yes", "action": "delete_selected", "_selected_action": [article.pk]}
    answer = bob.client.post(LIST + path.format(pk=article.pk), data, follow=True)
    assert "has been checked out by ada" in answer.content.decode()
    assert Article.objects.filter(pk=article.pk).exists()


def test_inlines_obey(ada: Person, bob: Person, article: Article) -> None:
    comment = Comment.objects.create(article=article, text="Old")
    check_out(comment, bob.user, related="none")
    page = ada.opens(article)
    row = {"comment_set-0-id": comment.pk, "comment_set-0-article": article.pk, "comment_set-0-text": "New"}
    refused = ada.saves(page, article, **row)
    assert "has been checked out by bob" in refused.content.decode()
    assert Comment.objects.get().text == "Old"


def test_a_model_that_knows_nothing_of_edit_locks_obeys_too(ada: Person, bob: Person) -> None:
    tag = Tag.objects.create(slug="news")
    page = bob.opens(tag)
    CheckOut.objects.all().delete()
    ada.opens(tag)
    assert bob.saves(page, tag).status_code == 423


# The other modes.


def test_presence_only_tells(ada: Person, bob: Person, article: Article) -> None:
    review = Review.objects.create(author=article.author)
    assert "No other users are editing." in ada.opens(review).content.decode()
    page = bob.opens(review)
    assert "<strong>ada</strong> since" in page.content.decode()
    assert bob.saves(page, review, text="Bob's").status_code == 302
    assert Review.objects.get().text == "Bob's"
    assert not status_of(review).must_end


def test_presence_does_not_pass_a_check_out(ada: Person, bob: Person, article: Article) -> None:
    review = Review.objects.create(author=article.author, text="Old")
    page = bob.opens(review)
    check_out(review, ada.user)
    answer = bob.saves(page, review, text="Bob's")
    assert (answer.status_code, Review.objects.get().text) == (423, "Old")


# The app's own pages.


def test_the_tables_of_locks_are_shown(ada: Person, article: Article) -> None:
    ada.opens(article)
    root = Person("root", "view_editlock", "view_checkout")
    for path in ("editlock", "checkout"):
        assert f"press.article:{article.pk}" in root.client.get(f"/admin/lockstep_editing/{path}/").content.decode()


def test_the_status_page_shows_what_is_out(ada: Person, article: Article) -> None:
    ada.opens(article)
    announce(article.author, ada.user)
    root = Person("root", "view_editlock")
    page = root.client.get("/editing/").content.decode()
    assert "<html" in page
    assert f"press.article:{article.pk}" in page
    part = root.client.get("/editing/", headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in part
    assert f"press.article:{article.pk}" in part


def test_the_status_page_is_not_for_everybody(ada: Person) -> None:
    assert ada.client.get("/editing/").status_code == 403
    assert Client().get("/editing/").status_code == 302


def test_a_new_record_obeys_who_has_the_table(ada: Person, bob: Person) -> None:
    check_out(Tag, ada.user)
    refused = bob.client.post("/admin/press/tag/add/", {"slug": "news"})
    assert "press.tag has been checked out by ada" in refused.content.decode()
    assert ada.client.post("/admin/press/tag/add/", {"slug": "news"}).status_code == 302


def test_a_new_inline_obeys_who_has_its_table(ada: Person, bob: Person, article: Article) -> None:
    check_out(Comment, bob.user, related="none")
    row = {"comment_set-TOTAL_FORMS": 1, "comment_set-0-article": article.pk, "comment_set-0-text": "New"}
    refused = ada.saves(ada.opens(article), article, **row)
    assert "press.comment has been checked out by bob" in refused.content.decode()
    assert not Comment.objects.exists()
