"""Who is let in, and with how much."""

import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.http import HttpRequest
from django.test import Client
from graphql import get_introspection_query

from django_lockstep.editing.graphql.views import MAX_BODY
from django_lockstep.editing.tokens import issue
from tests.django_lockstep.editing.graphql.asking import PATH, Asker
from tests.django_lockstep.editing.people import API, allow
from tests.support.factories import client_of

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.editing.urls")]
BODY = {"query": "{ tables { table } }"}


@pytest.fixture
def editor(ada: Any) -> Any:
    return allow(ada, "change_article")


@pytest.fixture(params=["http", "graphql"])
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def post(api: str, client: Client, **headers: str) -> Any:
    if api == "http":
        return client.post(
            f"{API}/tables/press.article/check-out", {"related": "none"}, "application/json", headers=headers
        )
    return client.post(PATH, BODY, "application/json", headers=headers)


NOBODIES = [
    "no token",
    "a forged token",
    "an expired token",
    "another scheme",
    "a session that has ended",
    "an inactive user",
    "a token from before another password",
]


@pytest.mark.parametrize("nobody", NOBODIES)
def test_nobody_is_401(api: str, editor: Any, settings: Any, nobody: str) -> None:
    client, token = Client(enforce_csrf_checks=True), issue(editor)
    if nobody == "an expired token":
        settings.LOCKSTEP_EDIT_API_TOKEN_AGE = 1e-9
    elif nobody.startswith("a session"):
        client.force_login(editor)
        client.session.delete()
    editor.is_active = nobody != "an inactive user"
    editor.password = "new" if "password" in nobody else editor.password
    editor.save()
    scheme = "Basic" if nobody == "another scheme" else "Bearer"
    sent = nobody not in ("no token", "a session that has ended")
    answer = post(api, client, **({"Authorization": f"{scheme} {token}{'x' * ('forged' in nobody)}"} if sent else {}))
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_a_session_needs_the_csrf_token_and_a_bearer_token_needs_none(api: str, editor: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(editor)
    assert post(api, client).status_code == 403
    client.cookies["csrftoken"] = "a" * 32
    assert post(api, client, **{"X-CSRFToken": "a" * 32}).status_code == 200
    bearer = Client(enforce_csrf_checks=True, headers={"Authorization": f"Bearer {issue(editor)}"})
    assert "no-store" in bearer.post(PATH, BODY, "application/json").headers["Cache-Control"]


def code(answer: Any) -> str:
    (error,) = answer.json()["errors"]
    assert answer.status_code == error["extensions"]["status"]
    return str(error["extensions"]["code"])


@pytest.mark.parametrize("method", ["get", "put", "delete", "options"])
def test_it_is_post_alone(editor: Any, method: str) -> None:
    answer = client_of(editor).generic(method.upper(), f"{PATH}?query={{tables{{table}}}}")
    assert (code(answer), answer.headers["Allow"]) == ("METHOD_NOT_ALLOWED", "POST")


def sent(editor: Any, body: bytes, content_type: str = "application/json") -> Any:
    client = Client(headers={"Authorization": f"Bearer {issue(editor)}"})
    return client.generic("POST", PATH, body, content_type)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b" ", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'[{"query": "{ tables { table } }"}]', 400),
        (b"{}", 400),
        (b'{"query": 7}', 400),
        (b'{"query": "{ tables { table } }", "variables": []}', 400),
        (b'{"query": "{ tables { table } }", "variables": {"a": NaN}}', 400),
        (b'{"query": "{ tables { table } }", "variables": {"a": "\\u0000"}}', 400),
        (b'{"query": "{ tables { table } }", "variables": {"a": "\\ud800"}}', 400),
        (b'{"query": "{ tables { table } }", "variables": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", 400),
        (b'{"query": "' + b" " * MAX_BODY + b'"}', 413),
        (b'{"query": "query a { __typename }", "operationName": "b"}', 400),
    ],
)
def test_what_is_not_a_request(editor: Any, body: bytes, status: int) -> None:
    answer = sent(editor, body)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/json")
    assert answer.json()["errors"][0]["extensions"]["status"] == status


def test_djangos_own_limit_of_the_body_counts_too(editor: Any, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    answer = sent(editor, json.dumps(BODY).encode())
    assert (answer.status_code, code(answer)) == (413, "CONTENT_TOO_LARGE")


@pytest.mark.parametrize("content_type", ["text/plain", "multipart/form-data; boundary=x", "application/graphql"])
def test_another_content_type(editor: Any, content_type: str) -> None:
    assert sent(editor, json.dumps(BODY).encode(), content_type).status_code == 415


@pytest.mark.parametrize(
    "query",
    [
        "{ __schema { queryType { name } } }",
        '{ __type(name: "EditResult") { name } }',
        "{ tables { must_end { holds { table_name { a { b { c } } } } } } }",
        "{ " + " ".join(f"a{number}: tables {{ table }}" for number in range(11)) + " }",
        "{ tables { " + "table " * 1000 + "} }",
        "{ tables " * 5000,
    ],
    ids=["the schema", "a type", "too deep", "too many names", "too long", "too deep to be read"],
)
def test_what_a_query_may_not_ask_for(editor: Any, query: str) -> None:
    answer = Asker(editor).post(query)
    assert (answer.status_code, answer.json()["data"]) == (200, None)
    assert {error["extensions"]["code"] for error in answer.json()["errors"]} == {"BAD_REQUEST"}


def test_graphiql_and_introspection_are_for_development(client: Client, editor: Any, settings: Any) -> None:
    settings.DEBUG = True
    page = client.get(PATH, headers={"Accept": "text/html"})
    assert (page.status_code, "csrftoken" in page.cookies, b"graphiql" in page.content.lower()) == (200, True, True)
    assert client.get(PATH, {"query": "{ tables { table } }"}).status_code == 400
    names = Asker(editor).ask(get_introspection_query())
    assert {"EditResult", "Query"} <= {kind["name"] for kind in names["types"]}


# Tokens, alike at both APIs: a project may have its own


def send(api: str, token: str, **meta: str) -> Any:
    client = Client(headers={"Authorization": f"Bearer {token}"}, **meta)  # type: ignore[arg-type]
    if api == "http":
        return client.get(f"{API}/tables")
    return client.post(PATH, {"query": "{ tables { table } }"}, content_type="application/json")


def only_secret(request: HttpRequest, token: str) -> Any:
    """Authenticate as a project might."""
    return get_user_model().objects.get(username="ada") if token == "secret" else None


def test_a_project_may_know_its_own_tokens(api: str, ada: Any, settings: Any) -> None:
    allow(ada, "change_article")
    settings.LOCKSTEP_EDIT_API_AUTHENTICATOR = f"{__name__}.only_secret"
    for token, status in [("secret", 200), (issue(ada), 401)]:
        assert send(api, token).status_code == status
