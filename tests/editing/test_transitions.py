"""The expected-status form."""

from typing import Any

import pytest

from accounts.editing import EditLockLost, check_out, transition
from accounts.editing.errors import InvalidTransition, NotTheEditor, UnknownTable
from tests.editing.story import expire, held, table
from tests.press.models import Article, Author, Review

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
