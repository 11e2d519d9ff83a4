"""The expected-status form of the HTTP API."""

from typing import Any

import pytest

from django_lockstep.editing import check_out
from tests.django_lockstep.editing.people import CLOSING, OPENING, Caller, allow, expire, held
from tests.testapps.press.models import Article, Author, Review

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.editing.urls")]

ALONE: dict[str, Any] = {"fk_tables": [], "fk_current_status": [], "fk_target_status": []}
TABLES = ["article", "author", "comment", "longread", "review", "tag"]
PERMISSIONS = [f"change_{table}" for table in TABLES]


@pytest.fixture
def caller(ada: Any) -> Caller:
    return Caller(allow(ada, *PERMISSIONS))


@pytest.fixture
def rival(bob: Any) -> Caller:
    return Caller(allow(bob, *PERMISSIONS))


def with_references(form: dict[str, Any], table: str, *references: str, **more: Any) -> dict[str, Any]:
    """Return the form for another table and other references, each with the form's statuses."""
    count = len(references)
    statuses = {name: form[name] * count for name in ("fk_current_status", "fk_target_status")}
    return {**form, "table": table, "fk_tables": list(references), **statuses, **more}


def test_all_change_together_and_back(caller: Caller) -> None:
    opened = caller.post("/transition", **OPENING).json()
    assert (opened["lock_result"], opened["current_status"]) == (True, "editing")
    assert opened["fk_current_status"] == [{"table_name": "press.author", "current_status": "locked", "record": ""}]
    assert held() == {("press.article", "editing", "ada"), ("press.author", "locked", "ada")}
    closed = caller.post("/transition", **CLOSING, token=opened["token"]).json()
    assert (closed["lock_result"], closed["current_status"]) == (True, "normal")
    assert closed["fk_current_status"] == [{"table_name": "press.author", "current_status": "normal", "record": ""}]
    assert held() == set()


def test_what_was_taken_is_refused_to_others(caller: Caller, rival: Caller) -> None:
    caller.post("/transition", **OPENING)
    before = held()
    assert rival.post("/transition", **OPENING).status_code == 423
    assert rival.post("/transition", **CLOSING).status_code == 403
    assert held() == before
    assert caller.post("/transition", **CLOSING).status_code == 200


def test_another_status_than_the_expected_one_changes_nothing(caller: Caller, bob: Any) -> None:
    check_out(Review, bob)
    before = held()
    answer = caller.post("/transition", **OPENING)
    refused = answer.json()
    assert (answer.status_code, refused["lock_result"], refused["holder"]) == (423, False, "bob")
    assert (refused["current_status"], refused["token"]) == ("normal", None)
    assert refused["fk_current_status"] == [{"table_name": "press.author", "current_status": "locked", "record": ""}]
    assert held() == before


class TestSharedReferences:
    def test_they_may_be_locked_before(self, caller: Caller, bob: Any) -> None:
        check_out(Review, bob, shared_references=True)
        expected = {**OPENING, "fk_current_status": ["locked"], "shared_references": True}
        assert caller.post("/transition", **expected).json()["lock_result"]

    @pytest.mark.parametrize("expected", ["normal", "locked"])
    def test_another_status_is_a_lost_race(self, caller: Caller, bob: Any, expected: str) -> None:
        if expected == "normal":
            check_out(Review, bob, shared_references=True)
        before = held()
        form = {**OPENING, "fk_current_status": [expected], "shared_references": True}
        lost = caller.post("/transition", **form)
        assert (lost.status_code, lost.json()["result"]["lock_result"]) == (409, False)
        assert held() == before


def test_what_expired_cannot_be_changed_back(caller: Caller, ada: Any) -> None:
    expire(check_out(Article, ada, related=[Author]))
    assert caller.post("/transition", **CLOSING).status_code == 409


@pytest.mark.parametrize(
    "wrong",
    [
        {"current_status": "editing", "target_status": "locked", **ALONE},
        {"target_status": "odd", **ALONE},
        {"fk_current_status": ["editing"]},
        {"fk_target_status": ["editing"]},
        {"fk_current_status": ["normal", "normal"]},
        {"fk_current_status": ["locked"]},
        {"fk_tables": ["press.author", "press.tag"], "fk_current_status": [], "fk_target_status": []},
        {"table": "press.tag", "fk_tables": ["press.article"]},  # to which it does not refer
    ],
)
def test_what_is_not_a_transition_is_an_error(caller: Caller, wrong: dict[str, Any]) -> None:
    answer = caller.post("/transition", **{**OPENING, **wrong})
    assert (answer.status_code, held()) == (422, set())


def test_the_tables_have_to_be_those_that_were_taken(caller: Caller) -> None:
    caller.post("/transition", **OPENING)
    before = held()
    refused = caller.post("/transition", **CLOSING | ALONE)
    assert refused.status_code == 422
    assert refused.json()["detail"] == "press.article was checked out with press.author"
    assert held() == before


def test_a_table_that_refers_to_itself_may_be_named(caller: Caller) -> None:
    named = ("press.comment", "press.comment", "press.article")
    assert caller.post("/transition", **with_references(OPENING, *named)).status_code == 200
    assert held() == {("press.comment", "editing", "ada"), ("press.article", "locked", "ada")}
    assert caller.post("/transition", **with_references(CLOSING, *named)).status_code == 200


class TestRecords:
    @pytest.fixture
    def article(self) -> Article:
        return Article.objects.create(author=Author.objects.create())

    def test_they_go_with_the_tables_they_refer_to(self, caller: Caller, article: Article) -> None:
        assert caller.post("/transition", **OPENING, record=str(article.pk)).status_code == 200
        assert held() == {(f"press.article:{article.pk}", "editing", "ada"), ("press.author", "locked", "ada")}
        assert caller.post("/transition", **CLOSING, record=str(article.pk)).status_code == 200
        assert held() == set()

    def test_they_are_given_back_although_they_were_deleted(self, caller: Caller, article: Article) -> None:
        caller.post("/transition", **OPENING, record=str(article.pk))
        Article.objects.all().delete()
        assert caller.post("/transition", **CLOSING, record=str(article.pk)).status_code == 200
        assert held() == set()


@pytest.mark.parametrize("references", [["press.author"], ["press.author", "press.article"]], ids=["unnamed", "named"])
class TestInheritance:
    def test_the_parents_table_is_edited_along(self, caller: Caller, bob: Any, references: list[str]) -> None:
        opened = caller.post("/transition", **with_references(OPENING, "press.longread", *references))
        assert opened.status_code == 200
        assert held() == {
            ("press.longread", "editing", "ada"),
            ("press.article", "editing", "ada"),
            ("press.author", "locked", "ada"),
        }
        assert not check_out(Article, bob).lock_result
        closed = caller.post("/transition", **with_references(CLOSING, "press.longread", *references))
        assert (closed.status_code, held()) == (200, set())

    def test_it_is_refused_while_the_parent_table_is_out(self, caller: Caller, bob: Any, references: list[str]) -> None:
        check_out(Article, bob, related="none")
        before = held()
        refused = caller.post("/transition", **with_references(OPENING, "press.longread", *references))
        assert (refused.status_code, refused.json()["holder"], held()) == (423, "bob", before)
