"""The HTTP API."""

from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test import Client

from django_lockstep.editing import check_out
from django_lockstep.editing.tokens import issue
from django_lockstep.errors import DeadlockDetected
from tests.django_lockstep.editing.people import API, Caller, allow, held
from tests.support.factories import client_of
from tests.support.sessions import Session, query
from tests.testapps.press.models import Article, Author, Cell, Tag

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.editing.urls")]


@pytest.fixture
def editor(ada: Any) -> Any:
    return allow(ada, "change_article", "change_author", "change_review")


@pytest.fixture
def rival(bob: Any) -> Any:
    return allow(bob, "change_article", "change_author", "change_review", "change_tag", "change_cell")


def test_a_table_goes_out_and_in_again(editor: Any) -> None:
    caller = Caller(editor)
    out = caller.post("/tables/press.article/check-out", ttl=60)
    assert (out.status_code, out.json()["lock_result"], out.json()["current_status"]) == (200, True, "editing")
    assert out.json()["fk_current_status"] == [{"table_name": "press.author", "current_status": "locked", "record": ""}]
    token = out.json()["token"]
    longer = caller.post("/tables/press.article/extend", token=token, ttl=600)
    assert longer.json()["expires_at"] > out.json()["expires_at"]
    back = caller.post("/tables/press.article/check-in", token=token)
    assert (back.status_code, back.json()["current_status"], held()) == (200, "normal", set())


def test_who_comes_later_is_told_by_whom_it_is_held(editor: Any, rival: Any) -> None:
    check_out(Article, editor)
    refused = Caller(rival).post("/tables/press.review/check-out")
    assert (refused.status_code, refused.headers["Content-Type"]) == (423, "application/problem+json")
    told = refused.json()
    assert (told["status"], told["detail"], told["lock_result"]) == (423, "press.review is taken", False)
    assert (told["current_status"], told["holder"], told["token"]) == ("normal", "ada", None)
    assert [(holder["editor"], holder["locked_by"]) for holder in told["holders"]] == [("ada", "press.article")]


def test_only_tables_that_the_user_may_see_are_listed(editor: Any) -> None:
    answer = Caller(editor).get("/tables")
    assert {"private", "no-store"} <= set(answer.headers["Cache-Control"].split(", "))
    tables = answer.json()
    assert {table["table"] for table in tables} == {"press.article", "press.author", "press.review"}
    assert Caller(editor).get("/tables/press.tag").status_code == 404


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: Tag.objects.create(slug="a/b c"), "press.tag"),
        (lambda: Cell.objects.create(row="B", column=2), "press.cell"),
        (Author.objects.create, "press.author"),
    ],
)
def test_records_do_the_same(rival: Any, make: Any, path: str) -> None:
    instance, caller = make(), Caller(rival)
    key = quote(check_out(instance, rival).record)
    assert caller.post(f"/tables/{path}/records/{key}/check-out").status_code == 423
    assert [status["record"] for status in caller.get(f"/tables/{path}/records").json()] == [
        caller.get(f"/tables/{path}/records/{key}").json()["record"]
    ]
    assert caller.post(f"/tables/{path}/records/{key}/extend").status_code == 200
    assert caller.post(f"/tables/{path}/records/{key}/check-in").json()["current_status"] == "normal"


def test_records_that_were_deleted_are_left_out_of_the_list(rival: Any) -> None:
    gone, there = (Tag.objects.create(slug=slug) for slug in ("gone", "there"))
    for tag in (gone, there):
        check_out(tag, rival)
    gone.delete()
    listed = Caller(rival).get("/tables/press.tag/records")
    assert (listed.status_code, [status["record"] for status in listed.json()]) == (200, ["there"])


def test_taking_over(editor: Any, rival: Any) -> None:
    token = check_out(Article, editor).token
    assert Caller(rival).post("/tables/press.article/take-over").status_code == 403
    rival.user_permissions.add(Permission.objects.get(codename="take_over_editlock"))
    assert Caller(rival).post("/tables/press.article/take-over").status_code == 200
    lost = Caller(editor).post("/tables/press.article/extend", token=token)
    assert (lost.status_code, lost.headers["Content-Type"]) == (409, "application/problem+json")
    assert (lost.json()["how"], lost.json()["by"]) == ("taken over", "bob")


@pytest.mark.parametrize(
    ("path", "data", "status"),
    [
        ("/tables/press.nothing/check-out", {}, 404),
        ("/tables/press.tag/check-out", {}, 404),
        ("/tables/press.author/records/7/check-out", {}, 404),
        ("/tables/press.author/records/seven/check-out", {}, 404),
        ("/tables/press.article/check-in", {}, 403),
        ("/tables/press.article/check-in", {"token": "wrong"}, 403),
        ("/tables/press.article/check-out", {"ttl": -1}, 422),
        ("/tables/press.article/check-out", {"related": "some"}, 422),
        ("/tables/press.article/extend", {"ttl": 86401}, 422),
        ("/transition", {"table": "press.article", "current_status": "normal", "target_status": "odd"}, 422),
    ],
)
def test_wrong_use_has_its_status(editor: Any, path: str, data: Any, status: int) -> None:
    answer = Caller(editor).post(path, **data)
    assert (answer.status_code, "detail" in answer.json()) == (status, True), answer.content
    assert held() == set()


@pytest.mark.parametrize(("language", "detail"), [("en", "The body is empty"), ("ja", "本文が空です")])
def test_without_a_body_it_is_refused_in_the_clients_language(editor: Any, language: str, detail: str) -> None:
    client, headers = client_of(editor), {"Accept-Language": language}
    answer = client.post(f"{API}/transition", "", content_type="application/json", headers=headers)
    assert (answer.status_code, answer.json()["detail"].startswith(detail)) == (400, True), answer.json()


@pytest.mark.parametrize("body", ['{"ttl": 60, "ttl": 600}', '{"note": "", "more": {"a": 1, "a": 1}}'])
def test_a_member_that_is_there_twice_is_refused(editor: Any, body: str) -> None:
    client = Client(headers={"Authorization": f"Bearer {issue(editor)}"})
    answer = client.post(f"{API}/tables/press.article/check-out", body, content_type="application/json")
    assert (answer.status_code, held()) == (400, set())
    assert "is there twice" in answer.json()["detail"]


def test_a_request_may_not_lock_tables_that_its_user_does_not_see(bob: Any) -> None:
    caller = Caller(allow(bob, "change_article"))
    refused = caller.post("/tables/press.article/check-out")
    assert (refused.status_code, held()) == (403, set())
    assert "press.author" not in refused.json()["detail"]
    assert caller.post("/tables/press.article/check-out", related="none").status_code == 200


@pytest.mark.parametrize(
    ("setting", "beyond", "within"),
    [
        ({"LOCKSTEP_EDIT_API_MAX_TTL": 60}, {"ttl": 60.5}, {"ttl": 60}),
        ({}, {"ttl": 86401}, {"ttl": 86400}),
        ({"LOCKSTEP_EDIT_API_MAX_DEPTH": 1}, {"depth": 2}, {"depth": 1}),
        ({}, {"depth": None}, {"depth": 3}),
        ({"LOCKSTEP_EDIT_API_MAX_DEPTH": None}, {"depth": -1}, {"depth": None}),
    ],
)
def test_time_and_depth_are_bounded(editor: Any, settings: Any, setting: Any, beyond: Any, within: Any) -> None:
    for name, value in setting.items():
        setattr(settings, name, value)
    caller = Caller(editor)
    refused = caller.post("/tables/press.article/check-out", **beyond)
    assert (refused.status_code, held()) == (422, set())
    assert caller.post("/tables/press.article/check-out", **within).status_code == 200


@pytest.mark.parametrize("path", ["/tables/{}", "/tables/{}/records", "/tables/{}/records/1"])
def test_a_hidden_table_is_answered_as_one_that_there_is_not(editor: Any, path: str) -> None:
    hidden, missing = (Caller(editor).get(path.format(name)) for name in ("press.tag", "press.nil"))
    assert hidden.status_code == missing.status_code == 404
    assert hidden.content == missing.content.replace(b"press.nil", b"press.tag")


@pytest.mark.parametrize("alias", ["{}_0", "0{}0", "+{}0", "{}\u0660", "{}0%00"])
def test_a_record_has_one_address(editor: Any, alias: str) -> None:
    # A number that the sequence has not reached.
    author, address = Author.objects.create(pk=10**9), alias.format(10**8)
    assert Caller(editor).get(f"/tables/press.author/records/{author.pk}").status_code == 200
    assert Caller(editor).get(f"/tables/press.author/records/{address}").status_code == 404
    statuses = {"table": "press.author", "current_status": "normal", "target_status": "editing"}
    assert Caller(editor).post("/transition", record=address, **statuses).status_code == 404


def test_what_a_later_attempt_may_cure_is_503(editor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise DeadlockDetected

    monkeypatch.setattr("django_lockstep.editing.api.status_of", fails)
    answer = Caller(editor).get("/tables/press.article")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


def test_seeing_is_not_changing(bob: Any) -> None:
    caller = Caller(allow(bob, "view_article"))
    assert caller.get("/tables/press.article").status_code == 200
    assert caller.post("/tables/press.article/check-out").status_code == 403


# Who is asking; more, alike at both APIs, is in graphql/test_requests.py.


def test_the_documentation_is_not_for_everybody(client: Client) -> None:
    assert client.get(f"{API}/docs").status_code == 302


def test_a_command_issues_tokens(editor: Any, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("edit_token", "ada")
    token = capsys.readouterr().out.strip()
    assert Client(headers={"Authorization": f"Bearer {token}"}).get(f"{API}/tables").status_code == 200
    with pytest.raises(CommandError, match="no active user 'nobody'"):
        call_command("edit_token", "nobody")


def test_openapi_tells_of_refusals(editor: Any) -> None:
    editor.is_staff = True
    editor.save()
    paths = client_of(editor).get(f"{API}/openapi.json").json()["paths"]
    operation = paths["/editing/api/tables/{name}/check-out"]["post"]
    assert set(operation["responses"]) >= {"200", "401", "403", "404", "409", "422", "423"}
    assert operation["security"]
    assert len(paths) == 13


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["/tables"])
def test_a_connection_that_died_is_an_outage_and_the_next_one_answers(editor: Any, other: Session, path: str) -> None:
    caller, pid = Caller(editor), query("SELECT pg_backend_pid()")
    other.run(lambda: query("SELECT pg_terminate_backend(%s, 20000)", pid))
    answer = caller.get(path)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1"), answer.content
    assert answer.headers["Content-Type"] == "application/problem+json"
    connection.close()
    assert caller.get(path).status_code == 200
