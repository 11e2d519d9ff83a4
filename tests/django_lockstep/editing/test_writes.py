"""Writes of instances: refused while somebody else has checked out the record or its table."""

from typing import Any

import pytest
from django.db import transaction
from django.db.transaction import TransactionManagementError
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from django_lockstep.editing import EditLocked, EditLockLost, check_in, check_out, require_editable, take_over, writing
from django_lockstep.editing.errors import UnknownRecord
from django_lockstep.editing.writers import EditLockMiddleware, current_writer
from django_lockstep.lab.explorer import Scenario, explore
from django_lockstep.locking import StaleVersionError
from tests.django_lockstep.editing.people import expire, fresh
from tests.testapps.press.models import Article, Author, Comment, LongRead

pytestmark = pytest.mark.django_db


@pytest.fixture
def author() -> Author:
    return Author.objects.create(name="Ada")


@pytest.fixture
def article(author: Author) -> Article:
    return Article.objects.create(author=author, title="Old")


@pytest.mark.parametrize("whole_table", [False, True])
@pytest.mark.parametrize("write", ["save", "delete"])
def test_what_somebody_else_has_cannot(ada: Any, bob: Any, article: Article, write: str, whole_table: bool) -> None:
    check_out(Article if whole_table else article, ada)
    article.title = "New"
    with writing(bob), pytest.raises(EditLocked, match=r"press\.article.* has been checked out by ada since") as caught:
        getattr(article, write)()
    assert (fresh(article).title, article.title, article.version) == ("Old", "New", 1)
    assert (caught.value.holder, caught.value.model) == ("ada", Article)


def test_an_optimistic_update_obeys_too(ada: Any, article: Article) -> None:
    check_out(article, ada)
    with pytest.raises(EditLocked):
        article.update_if_unchanged(title="New")
    with writing(ada):
        assert article.update_if_unchanged(title="New")
    assert (fresh(article).title, article.version) == ("New", 2)


def test_another_tab_is_somebody_else(ada: Any, article: Article, author: Author) -> None:
    check_out(article, ada, related="none")
    other_tab = check_out(author, ada).token
    with writing(ada, token=other_tab or ""), pytest.raises(EditLocked):
        article.save()


def test_the_same_person_without_the_token_is_somebody_else_where_that_is_required(ada: Any, article: Article) -> None:
    token = check_out(article, ada, require_token=True).token or ""
    with pytest.raises(EditLocked), writing(ada):
        article.save()
    with writing(ada, token=token):
        article.save()


def test_what_is_needed_unchanged_is_written_by_nobody(ada: Any, article: Article, author: Author) -> None:
    check_out(article, ada)
    with writing(ada), pytest.raises(EditLocked, match="locked because press.article:.* refers to it, by ada"):
        author.save()


def test_a_new_record_needs_the_table_only(ada: Any, author: Author, article: Article) -> None:
    check_out(article, ada)
    Article.objects.create(author=author)
    check_in(article, ada)
    check_out(Article, ada, related="none")
    with pytest.raises(EditLocked):
        Article.objects.create(author=author)
    with pytest.raises(EditLocked):
        LongRead.objects.create(author=author)
    Comment.objects.create(article=article)


def test_a_deletion_asks_about_what_goes_along(ada: Any, bob: Any, article: Article) -> None:
    comment = Comment.objects.create(article=article)
    check_out(comment, ada, related="none")
    with writing(bob), pytest.raises(EditLocked, match=r"press\.comment"):
        article.author.delete()
    assert Comment.objects.get() == comment
    check_in(comment, ada)
    article.author.delete()
    assert not Comment.objects.exists()


def test_an_inherited_row_is_guarded_in_every_table(ada: Any, author: Author) -> None:
    long = LongRead.objects.create(author=author)
    check_out(Article.objects.get(pk=long.pk), ada)
    with pytest.raises(EditLocked):
        long.save()
    with transaction.atomic(), pytest.raises(EditLocked):
        require_editable(LongRead, [long.pk])


# A check-out that has ended.


@pytest.mark.parametrize("end", ["expired at", "was taken over by chief"])
def test_a_late_save_of_a_check_out_that_has_ended_is_refused(ada: Any, chief: Any, article: Article, end: str) -> None:
    result = check_out(article, ada)
    if end == "expired at":
        expire(result)
    else:
        take_over(article, chief)
    article.title = "New"
    with writing(ada, token=result.token or ""), pytest.raises(EditLockLost, match=end):
        article.save()
    assert (article.title, article.version, fresh(article).title) == ("New", 1, "Old")


def test_an_expired_check_out_keeps_nobody_out(ada: Any, bob: Any, article: Article) -> None:
    expire(check_out(article, ada))
    with writing(bob):
        article.save()


def test_versions_go_on_telling_who_was_faster(ada: Any, article: Article) -> None:
    stale = fresh(article)
    article.title = "New"
    article.save()
    stale.title = "Newer"
    check_out(article, ada)
    with writing(ada), pytest.raises(StaleVersionError):
        stale.save()


# What no instance's save sees.


def test_a_fence_before_an_update_of_many(ada: Any, bob: Any, article: Article) -> None:
    check_out(article, ada)
    with transaction.atomic(), writing(bob):
        with pytest.raises(EditLocked):
            require_editable(Article, [article.pk])
        with pytest.raises(EditLocked):
            require_editable(Article)
        require_editable(Article, [])
    with transaction.atomic(), writing(ada):
        require_editable(Article, [article.pk])
        Article.objects.update(title="All")


@pytest.mark.django_db(transaction=True)
def test_those_who_write_different_records_do_not_wait_for_each_other() -> None:
    def checked_write(number: int) -> Any:
        def act(articles: list[Article]) -> None:
            with transaction.atomic():
                require_editable(articles[number])

        return act

    def two() -> list[Article]:
        author = Author.objects.create(name="Ada")
        return [Article.objects.create(title=title, author=author) for title in "AB"]

    exploration = explore(
        Scenario(set_up=two, actors=[checked_write(0), checked_write(1)], invariant=lambda articles: True)
    )
    assert (exploration.verdict, exploration.deadlocks, exploration.waits) == ("holds", 0, {})


@pytest.mark.parametrize("model", [Author, LongRead])
def test_a_fence_for_many_skips_what_is_deleted(ada: Any, author: Author, model: type[Author] | type[LongRead]) -> None:
    gone, there = (model.objects.create(**({} if model is Author else {"author": author})) for _ in range(2))
    pks = [gone.pk, there.pk]
    gone.delete()
    with transaction.atomic():
        require_editable(model, pks)
        check_out(there, ada)
        with pytest.raises(EditLocked):
            require_editable(model, pks)


def test_a_fence_for_one_needs_its_row(author: Author) -> None:
    pk = author.pk
    author.delete()
    author.pk = pk
    with transaction.atomic(), pytest.raises(UnknownRecord):
        require_editable(author)


@pytest.mark.django_db(transaction=True)
def test_a_fence_needs_a_transaction(article: Article) -> None:
    with pytest.raises(TransactionManagementError, match="needs a transaction"):
        require_editable(article)


# Who is writing.


@pytest.mark.parametrize("how", ["form", "header"])
def test_the_middleware_says_it_for_the_request(ada: Any, how: str) -> None:
    form, header = ({"_edit_token": "abc"}, {}) if how == "form" else ({}, {"X-Edit-Token": "abc"})
    request = RequestFactory().post("/", form, headers=header)
    request.user = ada
    seen: list[Any] = []

    def view(request: HttpRequest) -> HttpResponse:
        seen.append((current_writer().editor, current_writer().token))  # type: ignore[union-attr]
        return HttpResponse()

    EditLockMiddleware(view)(request)
    assert seen == [(ada, "abc")]
    assert current_writer() is None


def test_blocks_nest(ada: Any, bob: Any) -> None:
    with writing(ada):
        with writing(bob):
            assert current_writer().editor == bob  # type: ignore[union-attr]
        assert current_writer().editor == ada  # type: ignore[union-attr]
