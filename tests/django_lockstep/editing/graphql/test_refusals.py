"""What is refused, and how that is said."""

import logging
from typing import Any

import pytest
from django.db import OperationalError, connection

from django_lockstep.editing import operations
from django_lockstep.errors import DeadlockDetected
from tests.django_lockstep.editing.graphql.asking import CHECK_IN, CHECK_OUT, STATUS, TRANSITION, Asker
from tests.django_lockstep.editing.people import OPENING, held

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.editing.urls")]


@pytest.mark.parametrize(
    ("query", "variables", "status", "code"),
    [
        (CHECK_OUT, {"table": "press.nothing"}, 404, "NOT_FOUND"),
        (CHECK_OUT, {"table": "press.author", "record": "7"}, 404, "NOT_FOUND"),
        (CHECK_IN, {"table": "press.article"}, 403, "FORBIDDEN"),
        (CHECK_OUT, {"table": "press.article", "options": {"ttl": -1}}, 422, "UNPROCESSABLE_CONTENT"),
        (CHECK_OUT, {"table": "press.article", "options": {"note": "n" * 201}}, 422, "UNPROCESSABLE_CONTENT"),
        (TRANSITION, {"wanted": {**OPENING, "target_status": "locked"}}, 422, "UNPROCESSABLE_CONTENT"),
        (TRANSITION, {"wanted": {**OPENING, "fk_tables": []}}, 422, "UNPROCESSABLE_CONTENT"),
        (TRANSITION, {"wanted": {**OPENING, "fk_tables": ["press.tag"]}}, 404, "NOT_FOUND"),
    ],
)
def test_wrong_use_has_its_code(editor: Asker, query: str, variables: Any, status: int, code: str) -> None:
    problem = editor.fail(query, **variables)
    assert (problem["status"], problem["code"], bool(problem["detail"])) == (status, code, True)
    assert held() == set()


@pytest.mark.parametrize(
    ("query", "variables"),
    [
        (CHECK_OUT, {"table": "press.article", "options": {"related": "some"}}),
        (CHECK_OUT, {"table": "press.article", "options": {"depth": 2**40}}),
        (CHECK_OUT, {"table": "press.article", "options": {"unknown": 1}}),
        (TRANSITION, {"wanted": {**OPENING, "target_status": "odd"}}),
        (CHECK_OUT, {}),
        ("{ tables { lock_result ", {}),
        ("{ tabels { lock_result } }", {}),
    ],
)
def test_what_the_schema_does_not_have_is_a_bad_request(editor: Asker, query: str, variables: Any) -> None:
    problem = editor.fail(query, **variables)
    assert (problem["status"], problem["code"], held()) == (400, "BAD_REQUEST", set())


def test_a_wrong_name_is_not_answered_with_the_right_one(editor: Asker) -> None:
    assert editor.fail("{ tabels { lock_result } }")["detail"] == "Cannot query field 'tabels' on type 'Query'."


def test_a_note_with_a_character_that_cannot_be_stored(editor: Asker) -> None:
    query = r'mutation { check_out(table: "press.article", options: {note: "\u0000"}) { lock_result } }'
    assert editor.fail(query)["code"] == "UNPROCESSABLE_CONTENT"


@pytest.mark.parametrize(
    ("error", "status"),
    [(DeadlockDetected(), 503), (OperationalError("connection refused"), 503), (RuntimeError("a secret"), 500)],
)
def test_an_error_that_no_client_can_mend_says_no_more_than_that(
    editor: Asker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, status: int
) -> None:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise error

    monkeypatch.setattr(operations, "status_of", fails)
    answer = editor.post(STATUS, table="press.article").json()
    assert answer["errors"][0]["extensions"]["status"] == status
    assert "secret" not in str(answer)
    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(logged) == (status == 500)


def test_what_is_an_answer_is_not_logged(editor: Asker, caplog: pytest.LogCaptureFixture) -> None:
    editor.fail(STATUS, table="press.nothing")
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.django_db(transaction=True)
def test_each_is_a_transaction_also_where_requests_are_one(editor: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)

    def fails(*args: Any, **kwargs: Any) -> None:
        connection.cursor().execute("SELECT 1 / 0")

    monkeypatch.setattr("django_lockstep.editing.operations.check_in", fails)
    query = """mutation {
        first: check_out(table: "press.author") { lock_result }
        second: check_in(table: "press.author") { lock_result }
    }"""
    answer = editor.post(query).json()
    assert (answer["data"], answer["errors"][0]["path"]) == (None, ["second"])
    assert held() == {("press.author", "editing", "ada")}


# What a document costs is bounded


def test_fragments_that_double_are_read_once(editor: Asker) -> None:
    fragments = [f"fragment F{i} on Query {{ ...F{i + 1} ...F{i + 1} }}" for i in range(90)]  # 2**90 paths
    assert editor.ask(" ".join(["{ ...F0 }", *fragments, "fragment F90 on Query { __typename }"])) == "Query"


@pytest.mark.parametrize("number", [4, 18])
def test_fragments_that_spread_each_other(editor: Asker, number: int) -> None:
    spreads = " ".join(f"...F{i}" for i in range(number))
    document = "query { ...F0 } " + " ".join(f"fragment F{i} on Query {{ {spreads} }}" for i in range(number))
    answer = editor.post(document).json()
    assert (answer["data"], "within itself" in answer["errors"][0]["message"]) == (None, True)


@pytest.mark.parametrize("number", [100, 200, 330])
def test_braces_that_are_nested_deeply(editor: Asker, number: int) -> None:
    answer = editor.post("{ tables " * number + "}" * number).json()
    assert (answer["data"], answer["errors"][0]["extensions"]["code"]) == (None, "BAD_REQUEST")


def test_aliases_in_fragments_count(editor: Asker) -> None:
    aliases = " ".join(f"a{number}: tables {{ table }}" for number in range(10))
    fragment = f"fragment A on Query {{ {aliases} }}"
    assert len(editor.post(f"{{ ...A ...A }} {fragment}").json()["data"]) == 10
    answer = editor.post(f"{{ ...A b: checked_out {{ table }} }} {fragment}").json()
    assert (answer["data"], answer["errors"][0]["message"]) == (None, "The document has more than 10 aliases")
