"""The expected-status form."""

from typing import Any

import pytest
from django.db.transaction import atomic

from django_lockstep.editing import EditLockLost, EditResult, check_out, transition, writing
from django_lockstep.editing.errors import InvalidTransition, NotTheEditor, UnknownRecord, UnknownTable
from tests.django_lockstep.editing.story import expire, held, table
from tests.support.sessions import Session
from tests.testapps.press.models import Article, Author, City, Comment, Country, LongRead, Review, Tag

pytestmark = pytest.mark.django_db

OPEN: dict[str, Any] = {
    "table": Article,
    "current_status": "normal",
    "target_status": "editing",
    "fk_tables": [Author],
    "fk_current_status": ["normal"],
    "fk_target_status": ["locked"],
}
CLOSE: dict[str, Any] = {
    **OPEN,
    "current_status": "editing",
    "target_status": "normal",
    "fk_current_status": ["locked"],
    "fk_target_status": ["normal"],
}


def test_all_change_together_and_back(ada: Any) -> None:
    opened = transition(**OPEN, editor=ada)
    assert (opened.lock_result, opened.current_status) == (True, "editing")
    assert opened.fk_current_status == (table("press.author", "locked"),)
    assert held() == {("press.article", "editing", "ada"), ("press.author", "locked", "ada")}
    closed = transition(**CLOSE, editor=ada, token=opened.token)
    assert (closed.lock_result, closed.current_status) == (True, "normal")
    assert closed.fk_current_status == (table("press.author", "normal"),)
    assert held() == set()


def test_labels_will_do(ada: Any) -> None:
    assert transition("press.Article", "normal", "editing", ["press.Author"], "normal", "locked", ada).lock_result


def test_another_status_than_the_expected_one_changes_nothing(ada: Any, bob: Any) -> None:
    check_out(Review, bob)
    before = held()
    refused = transition(**OPEN, editor=ada)
    assert (refused.lock_result, refused.current_status, refused.holder) == (False, "normal", "bob")
    assert refused.fk_current_status == (table("press.author", "locked"),)
    assert held() == before


def test_shared_references_may_be_locked_before(ada: Any, bob: Any) -> None:
    check_out(Review, bob, shared_references=True)
    expected = {**OPEN, "fk_current_status": ["locked"]}
    assert transition(**expected, editor=ada, shared_references=True).lock_result


def test_only_the_editor_changes_it_back(ada: Any, bob: Any) -> None:
    transition(**OPEN, editor=ada)
    before = held()
    with pytest.raises(NotTheEditor):
        transition(**CLOSE, editor=bob)
    assert held() == before


def test_what_expired_cannot_be_changed_back(ada: Any) -> None:
    expire(transition(**OPEN, editor=ada))
    with pytest.raises(EditLockLost):
        transition(**CLOSE, editor=ada)


@pytest.mark.parametrize(
    "wrong",
    [
        (Article, "editing", "locked", [], [], []),
        (Article, "normal", "odd", [], [], []),
        (Article, "normal", "editing", [Author], ["editing"], ["locked"]),
        (Article, "normal", "editing", [Author], ["normal"], ["editing"]),
        (Article, "normal", "editing", [Author], ["normal", "normal"], ["locked"]),
        (Article, "normal", "editing", [Author], ["locked"], ["locked"]),
    ],
)
def test_what_is_no_transition_is_an_error(ada: Any, wrong: Any) -> None:
    with pytest.raises(InvalidTransition):
        transition(**dict(zip(OPEN, wrong, strict=True)), editor=ada)
    assert held() == set()


def test_the_tables_have_to_be_those_that_were_taken(ada: Any) -> None:
    transition(**OPEN, editor=ada)
    before = held()
    with pytest.raises(InvalidTransition, match=r"was checked out with press\.author"):
        transition(Article, "editing", "normal", [], [], [], ada)
    assert held() == before


def test_unknown_tables_are_an_error(ada: Any) -> None:
    with pytest.raises(UnknownTable):
        transition(Article, "normal", "editing", ["press.nothing"], "normal", "locked", ada)


# What may be named along with the table.


def opened(what: Any, references: list[Any], editor: Any, **options: Any) -> EditResult:
    return transition(what, "normal", "editing", references, "normal", "locked", editor, **options)


def closed(what: Any, references: list[Any], editor: Any) -> EditResult:
    return transition(what, "editing", "normal", references, "locked", "normal", editor)


@pytest.mark.parametrize(
    ("table", "references"),
    [(Tag, [Article]), (Author, [Article]), (Article, [Author, Review]), (Article, [Tag]), (Comment, [City])],
)
def test_nothing_is_locked_that_the_table_does_not_refer_to(ada: Any, table: Any, references: list[Any]) -> None:
    with pytest.raises(InvalidTransition, match=f"does not refer to {references[-1]._meta.label_lower}"):
        opened(table, references, ada)
    assert held() == set()


@pytest.mark.parametrize(
    ("table", "references"), [(Comment, [Author, Article]), (City, [Author]), (Country, [City, Author])]
)
def test_references_of_references_may_be_locked(ada: Any, table: Any, references: list[Any]) -> None:
    assert opened(table, references, ada).lock_result
    assert closed(table, references, ada).lock_result
    assert held() == set()


def test_a_table_that_refers_to_itself_may_be_named(ada: Any) -> None:
    assert opened(Comment, [Comment, Article], ada).lock_result
    assert held() == {("press.comment", "editing", "ada"), ("press.article", "locked", "ada")}
    assert closed(Comment, [Comment, Article], ada).lock_result


class TestRecords:
    @pytest.fixture
    def article(self) -> Article:
        return Article.objects.create(author=Author.objects.create())

    @pytest.mark.parametrize("whole", [True, False], ids=["with a table", "with a record"])
    def test_they_go_with_what_they_refer_to(self, ada: Any, article: Article, whole: bool) -> None:
        references = [Author if whole else article.author]
        assert opened(article, references, ada).lock_result
        assert closed(article, references, ada).lock_result
        assert held() == set()

    def test_another_record_of_the_same_table_is_no_reference(self, ada: Any, article: Article) -> None:
        with pytest.raises(InvalidTransition, match="does not refer to"):
            opened(article, [Author.objects.create()], ada)
        assert held() == set()

    def test_they_are_given_back_although_they_were_deleted(self, ada: Any, article: Article) -> None:
        opened(Article.objects.get(), [Author], ada)
        Article.objects.filter(pk=article.pk).delete()
        assert closed(article, [Author], ada).lock_result
        assert held() == set()

    def test_what_is_not_there_cannot_be_taken(self, ada: Any) -> None:
        with pytest.raises(UnknownRecord):
            opened(Author(pk=7), [], ada)
        assert held() == set()

    @pytest.mark.django_db(transaction=True)
    def test_a_reference_that_changes_meanwhile_is_no_reference(
        self, ada: Any, article: Article, other: Session
    ) -> None:
        author, another = article.author, Author.objects.create()
        with atomic(), writing(ada):
            article.author = another
            article.save()
            answer = other.start(opened, article, [author], ada)
            other.wait_until_blocked()
        with pytest.raises(InvalidTransition, match="does not refer to"):
            answer.result(20)
        assert held() == set()


@pytest.mark.parametrize("references", [[Author], [Author, Article]], ids=["unnamed", "named"])
class TestInheritance:
    def test_the_parents_table_is_edited_along(self, ada: Any, bob: Any, references: list[Any]) -> None:
        assert opened(LongRead, references, ada).lock_result
        assert held() == {
            ("press.longread", "editing", "ada"),
            ("press.article", "editing", "ada"),
            ("press.author", "locked", "ada"),
        }
        assert not check_out(Article, bob).lock_result
        assert closed(LongRead, references, ada).lock_result
        assert held() == set()

    def test_it_is_not_taken_while_somebody_has_the_parents_table(
        self, ada: Any, bob: Any, references: list[Any]
    ) -> None:
        check_out(Article, bob, related="none")
        before = held()
        refused = opened(LongRead, references, ada)
        assert (refused.lock_result, refused.holder, held()) == (False, "bob", before)
