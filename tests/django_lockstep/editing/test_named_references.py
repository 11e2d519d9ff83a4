"""Check-outs that name what is locked along."""

from typing import Any

import pytest
from django.db.transaction import atomic

from django_lockstep.editing import check_in, check_out, status_of, take_over, writing
from django_lockstep.editing.errors import UnrelatedTarget
from tests.django_lockstep.editing.story import held, table
from tests.support.sessions import Session
from tests.testapps.press.models import Article, Author, City, Comment, Review, Tag

pytestmark = pytest.mark.django_db


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
    @pytest.fixture
    def article(self) -> Article:
        return Article.objects.create(author=Author.objects.create())

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
    def test_a_reference_that_changes_meanwhile_is_not_a_reference(
        self, ada: Any, article: Article, other: Session
    ) -> None:
        author, another = article.author, Author.objects.create()
        with atomic(), writing(ada):
            article.author = another
            article.save()
            answer = other.start(check_out, article, ada, related=[author])
            other.wait_until_blocked()
        with pytest.raises(UnrelatedTarget):
            answer.result(20)
        assert held() == set()
