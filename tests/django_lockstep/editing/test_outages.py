"""A database that cannot be reached, or takes too long: 503 with Retry-After, never a bare 500."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test import Client

from accounts.models import Account
from django_lockstep.editing.tokens import issue
from tests.support.sessions import Session, query

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=["tables", "openapi.json"])
def ask(request: pytest.FixtureRequest, account: Account) -> Callable[[], Any]:
    """Return what sends a request."""
    headers = {"Authorization": f"Bearer {issue(account.user)}"}
    return lambda: Client().get(f"/editing/api/{request.param}", headers=headers)


def assert_unavailable(response: Any) -> None:
    assert (response.status_code, response.headers["Retry-After"]) == (503, "1"), response.content
    assert response.headers["Content-Type"] == "application/problem+json"


def test_a_connection_that_died(ask: Callable[[], Any], other: Session) -> None:
    pid = query("SELECT pg_backend_pid()")
    other.run(lambda: query("SELECT pg_terminate_backend(%s, 20000)", pid))
    assert_unavailable(ask())
    connection.close()
    assert ask().status_code == 200


@pytest.fixture
def no_connection_left(account: Account, other: Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the server refuse every new connection, as it does where there are too many."""
    role = f"{connection.settings_dict['NAME']}_crowded"
    statements = f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN CONNECTION LIMIT 0"
    other.run(lambda: connection.cursor().execute(statements))
    connection.close()
    with monkeypatch.context() as patch:
        patch.setattr(connection, "get_new_connection", lambda params: psycopg.connect(**{**params, "user": role}))
        yield
    other.run(lambda: connection.cursor().execute(f"DROP ROLE {role}"))


def test_no_connection_to_be_had(ask: Callable[[], Any], no_connection_left: None) -> None:
    assert_unavailable(ask())
