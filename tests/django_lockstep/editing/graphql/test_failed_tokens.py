"""Tokens, alike at both APIs: invalid ones are limited by the client's address, and a project may have its own."""

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.checks import run_checks
from django.http import HttpRequest
from django.test import Client

from django_lockstep.editing.tokens import issue
from tests.django_lockstep.editing.callers import API, allow
from tests.django_lockstep.editing.graphql.asking import PATH

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.django_lockstep.editing.urls")]
LIMIT = 30


def send(api: str, token: str, **meta: str) -> Any:
    client = Client(headers={"Authorization": f"Bearer {token}"}, **meta)  # type: ignore[arg-type]
    if api == "http":
        return client.get(f"{API}/tables")
    return client.post(PATH, {"query": "{ tables { table } }"}, content_type="application/json")


@pytest.fixture(params=["http", "graphql"])
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all requests of a test in one minute."""
    monkeypatch.setattr("django_lockstep.editing.tokens.time", lambda: 6_000_010.0)


def test_the_thirty_first_is_refused_with_the_time_to_wait(api: str, ada: Any) -> None:
    assert [send(api, "wrong").status_code for _ in range(LIMIT)] == [401] * LIMIT
    refused = send(api, "wrong")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "50")
    assert "30 invalid tokens" in refused.content.decode()
    assert send(api, issue(allow(ada, "change_article"))).status_code == 200, "valid tokens go on"


def test_the_next_minute_starts_anew(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [send(api, "wrong").status_code for _ in range(LIMIT + 1)][-1] == 429
    monkeypatch.setattr("django_lockstep.editing.tokens.time", lambda: 6_000_060.0)
    assert send(api, "wrong").status_code == 401


def test_both_apis_count_together() -> None:
    for _ in range(LIMIT):
        send("http", "wrong")
    assert send("graphql", "wrong").status_code == 429


@pytest.mark.parametrize("proxies", [0, 2], ids=["no proxy", "passed fewer proxies"])
def test_an_invented_header_is_no_other_address(api: str, settings: Any, proxies: int) -> None:
    settings.LOCKSTEP_TRUSTED_PROXIES = proxies
    answers = [send(api, "wrong", HTTP_X_FORWARDED_FOR=f"10.0.0.{number}") for number in range(LIMIT + 1)]
    assert answers[-1].status_code == 429


def test_a_trusted_proxy_tells_the_address(api: str, settings: Any) -> None:
    settings.LOCKSTEP_TRUSTED_PROXIES = 1
    for number in range(LIMIT):
        # What a client invents stands before the address that the proxy appends.
        assert send(api, "wrong", HTTP_X_FORWARDED_FOR=f"10.0.0.{number}, 192.0.2.1").status_code == 401
    assert send(api, "wrong", HTTP_X_FORWARDED_FOR="10.0.0.1,192.0.2.1").status_code == 429
    assert send(api, "wrong", HTTP_X_FORWARDED_FOR="192.0.2.2").status_code == 401
    assert send(api, "wrong").status_code == 401, "without the header it is REMOTE_ADDR"


@pytest.mark.parametrize("value", [-1, True, "1", None])
def test_a_number_of_proxies_that_is_none(settings: Any, value: Any) -> None:
    settings.LOCKSTEP_TRUSTED_PROXIES = value
    (message,) = [message for message in run_checks() if message.id == "lockstep.E060"]
    assert message.msg == f"LOCKSTEP_TRUSTED_PROXIES must be an integer of at least 0, not {value!r}"


def only_secret(request: HttpRequest, token: str) -> Any:
    """Authenticate as a project might."""
    return get_user_model().objects.get(username="ada") if token == "secret" else None


def test_a_project_may_know_its_own_tokens(api: str, ada: Any, settings: Any) -> None:
    allow(ada, "change_article")
    settings.LOCKSTEP_EDIT_API_AUTHENTICATOR = f"{__name__}.only_secret"
    for token, status in [("secret", 200), (issue(ada), 401)]:
        assert send(api, token).status_code == status
