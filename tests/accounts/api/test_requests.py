"""Requests that are not what the API takes, to both APIs: refused with problem details, before anything is done."""

import json
from base64 import b64encode
from typing import Any

import pytest
from django.test import Client

from accounts.api import make_token
from accounts.models import Account, Entry
from django_lockstep.editing.models import CheckOut
from django_lockstep.editing.tokens import issue
from django_lockstep.http import etag
from tests.accounts.api.clients import Api
from tests.support.factories import AccountFactory, UserFactory

pytestmark = pytest.mark.django_db

JSON = "application/json"


class Sender:
    """Sends what is not JSON made from a dict, to an operation that changes something."""

    def __init__(self, path: str, good: dict[str, Any], token: str) -> None:
        self.path, self.good = path, good
        self.headers = {"Authorization": f"Bearer {token}"}

    def __call__(self, data: Any, content_type: str = JSON) -> Any:
        sent = data if isinstance(data, str | bytes) else json.dumps(data)
        return Client().post(self.path, sent, content_type=content_type, headers=self.headers)


@pytest.fixture(params=["accounts", "edit locks"])
def send(request: pytest.FixtureRequest, account: Account) -> Sender:
    if request.param == "accounts":
        return Sender(f"/api/accounts/{account.pk}/deposit", {"amount": "1"}, make_token(account.user))
    boss = UserFactory.create(is_superuser=True)
    return Sender("/editing/api/tables/accounts.account/check-out", {"note": "mine"}, issue(boss))


def assert_refused(response: Any, status: int) -> None:
    assert response.status_code == status, response.content
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.json()["status"] == status
    assert not Entry.objects.exists()
    assert not CheckOut.objects.exists()


class TestBodies:
    @pytest.mark.parametrize("content_type", [JSON, "application/json; charset=utf-8"])
    def test_what_is_right_is_taken(self, content_type: str, send: Sender) -> None:
        assert send(send.good, content_type).status_code == 200

    @pytest.mark.parametrize(
        "body",
        ["", "{", "x", b"\xff{}", '{"a": NaN}', "[" * 100_000],
        ids=["empty", "half", "no JSON", "no text", "NaN", "deep"],
    )
    def test_invalid_json_is_400(self, body: Any, send: Sender) -> None:
        assert_refused(send(body), 400)

    @pytest.mark.parametrize("text", [r"a\u0000b", r"\ud800", r"\udc00x"])
    def test_strings_that_are_no_text_are_400(self, text: str, send: Sender) -> None:
        (name,) = send.good
        assert_refused(send(f'{{"{name}": "{text}"}}'), 400)
        assert_refused(send(f'{{"{name}": "1", "{text}": 1}}'), 400)

    def test_a_backslash_before_an_escape_is_text(self, send: Sender) -> None:
        (name,) = send.good
        assert send(f'{{"{name}": "\\\\u0000"}}').status_code in {200, 422}

    def test_a_body_that_is_too_long_is_400(self, send: Sender, settings: Any) -> None:
        settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
        (name,) = send.good
        assert_refused(send({name: "1" * 200}), 400)

    def test_unknown_members_are_422_and_named(self, send: Sender) -> None:
        response = send({**send.good, "curency": "USD"})
        assert_refused(response, 422)
        assert "curency" in response.json()["detail"]

    @pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/xml"])
    def test_another_content_type_is_415(self, content_type: str, send: Sender) -> None:
        assert_refused(send(send.good, content_type), 415)


class TestPaths:
    @pytest.mark.parametrize(
        "path", ["/api/", "/api/nothing", "/api/accounts/", "/editing/api/", "/editing/api/tables/"]
    )
    @pytest.mark.parametrize("method", ["get", "post"])
    def test_an_unknown_path_is_404(self, method: str, path: str) -> None:
        assert_refused(getattr(Client(), method)(path), 404)

    @pytest.mark.parametrize(
        ("method", "path", "allowed"),
        [
            ("post", "/api/accounts", "GET, HEAD"),
            ("get", "/api/transfers", "POST"),
            ("head", "/api/transfers", "POST"),
            ("delete", "/api/accounts/1", "GET, HEAD, PUT"),
            ("put", "/editing/api/tables", "GET, HEAD"),
        ],
    )
    def test_another_method_is_405(self, method: str, path: str, allowed: str) -> None:
        response = getattr(Client(), method)(path)
        assert (response.status_code, response.headers["Allow"]) == (405, allowed)
        assert response.headers["Content-Type"] == "application/problem+json"

    @pytest.mark.parametrize("alias", ["{}_0", " {}0", "0{}0", "+{}0", "{}\u0660"])
    def test_an_account_has_one_address(self, alias: str, account: Account) -> None:
        # A number that the sequence has not reached.
        other = AccountFactory.create(pk=10**9, user=account.user)
        api, address = Api(account.user), alias.format(10**8)
        assert int(address) == other.pk
        assert api.get(f"/accounts/{other.pk}").status_code == 200
        assert_refused(api.get(f"/accounts/{address}"), 404)
        body = {"source": str(account.pk), "target": address, "amount": "1"}
        assert_refused(api.post("/transfers", body), 422)
        other.refresh_from_db()
        assert other.balance == 0


@pytest.mark.parametrize(
    "cursor",
    ["o=-1&p=1", "o=999999999999&r=1", "p=1' OR 1=1", "p=%00", "o=1e9", "p=x", f"p={'9' * 40}x", "r=maybe", "o=\u0661"],
)
class TestCursors:
    @pytest.mark.parametrize("path", ["/accounts", "/accounts/{pk}/entries"])
    def test_one_that_was_tampered_with_is_400(self, path: str, cursor: str, account: Account) -> None:
        encoded = b64encode(cursor.encode()).decode()
        assert_refused(Api(account.user).get(f"{path.format(pk=account.pk)}?cursor={encoded}"), 400)

    def test_so_is_one_that_is_not_encoded(self, cursor: str, account: Account) -> None:
        assert_refused(Api(account.user).get(f"/accounts?cursor={cursor}"), 400)


class TestHead:
    @pytest.mark.parametrize("path", ["/accounts", "/accounts/{pk}", "/accounts/{pk}/entries", "/openapi.json"])
    def test_it_is_answered_as_get_without_the_body(self, path: str, account: Account) -> None:
        headers = {"Authorization": f"Bearer {make_token(account.user)}"}
        address = f"/api{path.format(pk=account.pk)}"
        got, head = (getattr(Client(), method)(address, headers=headers) for method in ("get", "head"))
        assert (head.status_code, head.content) == (got.status_code, b"") == (200, b"")
        assert head.headers == got.headers

    def test_so_is_a_condition(self, account: Account) -> None:
        headers = {"Authorization": f"Bearer {make_token(account.user)}", "If-None-Match": etag(account)}
        assert Client().head(f"/api/accounts/{account.pk}", headers=headers).status_code == 304


def test_an_answer_is_its_clients_alone_and_asked_for_again(account: Account) -> None:
    for response in (Api(account.user).get("/accounts"), Api(account.user).get(f"/accounts/{account.pk}")):
        assert response.headers["Cache-Control"] == "private, no-cache"
        assert {name.strip() for name in response.headers["Vary"].split(",")} >= {"Authorization", "Cookie"}
    assert Api(account.user).get("/accounts/0").headers["Cache-Control"] == "no-store"


class TestPreconditions:
    @pytest.mark.parametrize("operation", ["deposit", "withdraw"])
    def test_none_match_keeps_a_change_from_being_made(self, operation: str, account: Account) -> None:
        path, api = f"/accounts/{account.pk}/{operation}", Api(account.user)
        for tag in ("*", etag(account), f"W/{etag(account)}"):
            assert_refused(api.post(path, {"amount": "1"}, **{"If-None-Match": tag}), 412)
        assert api.post(path, {"amount": "1"}, **{"If-None-Match": '"other.1"'}).status_code == 200

    @pytest.mark.parametrize("operation", ["deposit", "withdraw"])
    def test_a_weak_tag_matches_nothing(self, operation: str, account: Account) -> None:
        response = Api(account.user).post(
            f"/accounts/{account.pk}/{operation}", {"amount": "1"}, **{"If-Match": f"W/{etag(account)}"}
        )
        assert_refused(response, 412)
        assert response.headers["ETag"] == etag(account)


class TestDocument:
    @pytest.mark.parametrize("path", ["/api/openapi.json", "/editing/api/openapi.json"])
    def test_a_token_fetches_it(self, path: str, account: Account) -> None:
        token = make_token(account.user) if path.startswith("/api") else issue(account.user)
        response = Client().get(path, headers={"Authorization": f"Bearer {token}"})
        assert (response.status_code, response.json()["openapi"][:1]) == (200, "3")

    @pytest.mark.parametrize("path", ["/api/openapi.json", "/editing/api/docs"])
    def test_an_invalid_token_is_401_without_a_redirect(self, path: str, db: None) -> None:
        assert_refused(Client().get(path, headers={"Authorization": "Bearer x"}), 401)
        response = Client().get(path)
        assert (response.status_code, response.headers["Location"][:13]) == (302, "/admin/login/")


def test_a_server_error_is_logged_and_its_response_has_no_details(
    account: Account, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(Account, "deposit", fail)
    client = Client(raise_request_exception=False)
    headers = {"Authorization": f"Bearer {make_token(account.user)}"}
    response = client.post(f"/api/accounts/{account.pk}/deposit", {"amount": "1"}, JSON, headers=headers)
    assert_refused(response, 500)
    assert b"secret" not in response.content
    assert response.exc_info[0] is ZeroDivisionError  # type: ignore[attr-defined]
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]
