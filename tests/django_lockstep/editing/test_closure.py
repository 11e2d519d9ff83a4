"""What a check-out takes: over foreign keys, through inheritance, in circles; tables and records."""

import uuid
from typing import Any

import pytest
from django.db import models
from django.db.transaction import atomic

from django_lockstep.editing import check_in, check_out, status_of, take_over, writing
from django_lockstep.editing.errors import UnknownRecord, UnknownTable, UnrelatedTarget
from django_lockstep.editing.targets import record
from tests.django_lockstep.editing.people import held, statuses, table
from tests.support.sessions import Session
from tests.testapps.press.models import Article, Author, Cell, City, Comment, Country, Draft, LongRead, Review, Tag

pytestmark = pytest.mark.django_db


def taken(what: Any, **options: Any) -> dict[str, str]:
    """Return what a check-out of it would lock along."""
    return statuses(status_of(what, **options))


@pytest.fixture
def article() -> Article:
    return Article.objects.create(author=Author.objects.create(code=7))


# Tables.


def test_foreign_keys_are_followed_as_deeply_as_the_caller_says() -> None:
    assert set(taken(Comment)) == {"press.article", "auth.user"}
    assert set(taken(Comment, depth=2)) == {"press.article", "auth.user", "press.author"}
    assert set(taken(Comment, depth=None)) == {"press.article", "auth.user", "press.author"}
    assert taken(Comment, depth=0) == {}


def test_circles_end() -> None:
    assert set(taken(Country, depth=None)) == {"press.city", "press.author"}
    assert set(taken(City, depth=None)) == {"press.country", "press.author"}


def test_a_table_that_refers_to_itself_is_edited_and_not_locked(ada: Any) -> None:
    check_out(Comment, ada)
    assert ("press.comment", "editing", "ada") in held()
    assert ("press.comment", "locked", "ada") not in held()


def test_the_tables_that_it_inherits_from_are_edited_too(ada: Any, bob: Any) -> None:
    check_out(LongRead, ada)
    assert {("press.longread", "editing", "ada"), ("press.article", "editing", "ada")} < held()
    assert not check_out(Article, bob).lock_result


def test_a_reference_takes_what_it_inherits_from() -> None:
    class Shelf(models.Model):
        longest = models.ForeignKey(LongRead, models.DO_NOTHING, related_name="+")

        class Meta:
            app_label = "press_unmade"
            managed = False

    assert set(taken(Shelf)) == {"press.longread", "press.article"}


def test_a_proxy_is_its_table(ada: Any, bob: Any) -> None:
    assert check_out(Draft, ada).table == "press.article"
    assert not check_out(Article, bob).lock_result


def test_the_through_table_of_a_many_to_many_field_refers_to_both_sides() -> None:
    assert "press.tag" not in taken(Article)
    assert set(taken(Article.tags.through)) == {"press.article", "press.tag"}


def test_what_has_no_table_is_an_error(ada: Any) -> None:
    class Abstract(models.Model):
        class Meta:
            abstract = True

    for nothing in (Abstract, 5, None):
        with pytest.raises(UnknownTable):
            check_out(nothing, ada)


# Records.


def test_a_record_is_taken_with_the_records_it_refers_to(ada: Any, article: Article) -> None:
    result = check_out(article, ada)
    assert (result.table, result.record, result.current_status) == ("press.article", str(article.pk), "editing")
    assert statuses(result) == {f"press.author:{article.author_id}": "locked"}


def test_depth_holds_for_records(article: Article) -> None:
    comment = Comment.objects.create(article=article, answers=Comment.objects.create(article=article))
    assert set(taken(comment)) == {f"press.article:{article.pk}", f"press.comment:{comment.answers_id}"}
    assert f"press.author:{article.author_id}" in taken(comment, depth=2)


def test_the_row_counts_and_not_the_instance(article: Article) -> None:
    stale = Article.objects.get(pk=article.pk)
    article.author = Author.objects.create()
    article.save()
    assert set(taken(stale)) == {f"press.author:{article.author_id}"}


def test_a_reference_by_another_column_is_the_record_it_means(article: Article) -> None:
    assert set(taken(City.objects.create(poet_id=7))) == {f"press.author:{article.author_id}"}


def test_an_inherited_record_is_one_record(ada: Any, bob: Any, article: Article) -> None:
    long = LongRead.objects.create(author=article.author)
    check_out(long, ada, shared_references=True)
    assert not check_out(Article.objects.get(pk=long.pk), bob, shared_references=True).lock_result
    assert check_out(article, bob, shared_references=True).lock_result


KEYS: dict[str, Any] = {
    "number": (lambda: Author.objects.create(pk=2**40), str(2**40)),
    "uuid": (
        lambda: Comment.objects.create(
            pk=uuid.UUID(int=7), article=Article.objects.create(author=Author.objects.create())
        ),
        "00000000-0000-0000-0000-000000000007",
    ),
    "text": (lambda: Tag.objects.create(slug="a:b/c' \"ü"), "a:b/c' \"ü"),
    "composite": (lambda: Cell.objects.create(row='B "2"', column=7), '["B \\"2\\"", "7"]'),
}


@pytest.mark.parametrize(("make", "text"), KEYS.values(), ids=KEYS)
def test_any_primary_key_will_do(ada: Any, bob: Any, make: Any, text: str) -> None:
    instance = make()
    assert check_out(instance, ada).record == text
    assert not check_out(record(type(instance), text), bob).lock_result


def test_what_is_no_record_is_an_error(ada: Any) -> None:
    for nothing in (Author(), Author(pk=5), Tag(slug="")):
        with pytest.raises(UnknownRecord):
            check_out(nothing, ada)
    with pytest.raises(UnknownRecord, match="'seven' cannot be a primary key"):
        record(Author, "seven")


# Both: a record is a part of its table.


def test_a_table_keeps_others_from_its_records(ada: Any, bob: Any, article: Article) -> None:
    check_out(Article, ada, related="none")
    refused = check_out(article, bob, related="none")
    assert (refused.lock_result, refused.current_status, refused.holder) == (False, "editing", "ada")


def test_a_record_keeps_others_from_its_table_and_no_more(ada: Any, bob: Any, article: Article) -> None:
    check_out(article, ada, related="none")
    refused = check_out(Article, bob, related="none")
    assert (refused.lock_result, refused.current_status, refused.holder) == (False, "normal", "ada")
    other = Article.objects.create(author=article.author)
    assert check_out(other, bob, related="none").lock_result


def test_a_record_that_is_needed_unchanged_excludes_edits_of_its_table(ada: Any, bob: Any, article: Article) -> None:
    check_out(article, ada, shared_references=True)
    assert not check_out(Author, bob).lock_result
    assert check_out(City, bob, shared_references=True).lock_result


# Check-outs that name what is locked along


def test_only_what_is_named_is_locked_in_the_order_of_its_names(ada: Any) -> None:
    result = check_out(Comment, ada, related=["press.Author", Article])
    assert result.fk_current_status == (table("press.author", "locked"), table("press.article", "locked"))
    assert held() == {
        ("press.comment", "editing", "ada"),
        ("press.author", "locked", "ada"),
        ("press.article", "locked", "ada"),
    }
    assert check_in(Comment, ada).lock_result
    assert held() == set()


def test_what_is_named_excludes_and_is_told(ada: Any, bob: Any) -> None:
    check_out(Author, ada)
    assert check_out(Article, bob, related=[]).lock_result
    check_in(Article, bob)
    refused = check_out(Article, bob, related=[Author])
    assert (refused.lock_result, refused.holder) == (False, "ada")
    assert [hold.editor for hold in status_of(Article, related=[Author]).must_end] == ["ada"]


def test_it_can_be_taken_over(ada: Any, chief: Any) -> None:
    check_out(Review, ada)
    assert take_over(Article, chief, related=[Author]).lock_result
    assert held() == {("press.article", "editing", "chief"), ("press.author", "locked", "chief")}


@pytest.mark.parametrize(
    ("what", "names"),
    [(Tag, [Article]), (Author, [Article]), (Article, [Author, Review]), (Article, [Tag]), (Comment, [City])],
)
def test_nothing_is_locked_that_the_table_does_not_refer_to(ada: Any, what: Any, names: list[Any]) -> None:
    with pytest.raises(UnrelatedTarget, match=f"does not refer to {names[-1]._meta.label_lower}"):
        check_out(what, ada, related=names)
    assert held() == set()


class TestRecords:
    def test_they_go_with_a_record(self, ada: Any, article: Article) -> None:
        check_out(article, ada, related=[article.author])
        assert held() == {
            (f"press.article:{article.pk}", "editing", "ada"),
            (f"press.author:{article.author_id}", "locked", "ada"),
        }

    def test_another_record_of_the_same_table_is_not_a_reference(self, ada: Any, article: Article) -> None:
        with pytest.raises(UnrelatedTarget):
            check_out(article, ada, related=[Author.objects.create()])
        assert held() == set()

    @pytest.mark.django_db(transaction=True)
    def test_a_reference_that_changes_meanwhile_is_refused(self, ada: Any, article: Article, other: Session) -> None:
        author, another = article.author, Author.objects.create()
        with atomic(), writing(ada):
            article.author = another
            article.save()
            answer = other.start(check_out, article, ada, related=[author])
            other.wait_until_blocked()
        with pytest.raises(UnrelatedTarget):
            answer.result(20)
        assert held() == set()
