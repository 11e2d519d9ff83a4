"""Conflicts that no view handled: honest answers in place of a 500."""

import sqlite3
from contextlib import closing
from typing import Any

import psycopg
import pytest
from concurrency.exceptions import RecordModifiedError
from django.db import IntegrityError, InterfaceError, OperationalError, ProgrammingError
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import path

from django_lockstep.http import PreconditionFailed, Problem, problem_of
from django_lockstep.http.problems import is_outage
from django_lockstep.locking import (
    ConcurrencyError,
    DeadlockDetected,
    LockNotAvailable,
    RetriesExhausted,
    SerializationFailure,
    StaleVersionError,
)

ERRORS: dict[str, Exception] = {
    "stale": StaleVersionError(expected=1, actual=2),
    "theirs": RecordModifiedError("x", target=None),
    "busy": LockNotAvailable(),
    "deadlock": DeadlockDetected(),
    "serialization": SerializationFailure(),
    "exhausted": RetriesExhausted(attempts=3),
    "failed": PreconditionFailed(etag='"1.2"'),
    "other": ZeroDivisionError(),
}


def fail(request: HttpRequest, name: str) -> HttpResponse:
    raise ERRORS[name]


async def fail_async(request: HttpRequest, name: str) -> HttpResponse:
    raise ERRORS[name]


urlpatterns = [path("fail/<name>", fail), path("async/<name>", fail_async)]


@pytest.fixture(autouse=True)
def _with_middleware(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.django_lockstep.http.test_middleware"
    settings.MIDDLEWARE = ["django_lockstep.http.ConcurrencyMiddleware"]


@pytest.mark.parametrize("kind", ["fail", "async"])
@pytest.mark.parametrize(
    ("name", "status"),
    [("stale", 409), ("theirs", 409), ("busy", 503), ("deadlock", 503), ("serialization", 503), ("exhausted", 503)],
)
def test_conflicts_have_their_status(kind: str, name: str, status: int) -> None:
    response = Client().get(f"/{kind}/{name}", headers={"Accept": "application/json"})
    assert response.status_code == status
    assert response.json()["status"] == status
    assert response.headers.get("Retry-After") == ("1" if status == 503 else None)


def test_a_failed_precondition_tells_the_current_tag() -> None:
    response = Client().get("/fail/failed")
    assert (response.status_code, response.headers["ETag"]) == (412, '"1.2"')


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(ZeroDivisionError):
        Client().get("/fail/other")


def test_a_browser_gets_a_page_although_the_project_has_none() -> None:
    response = Client().get("/fail/stale", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert response.status_code == 409
    assert response.headers["Content-Type"].startswith("text/html")
    assert "<h1>Conflict</h1>" in response.content.decode()


def test_the_projects_own_page_comes_first(settings: Any, tmp_path: Any) -> None:
    (tmp_path / "409.html").write_text("Ours, {{ status }}")
    settings.TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "DIRS": [tmp_path]}]
    assert Client().get("/fail/busy", headers={"Accept": "text/html"}).content == b"Ours, 503"


def test_whoever_takes_anything_gets_json_which_is_never_stored() -> None:
    headers = Client().get("/fail/stale").headers
    assert (headers["Content-Type"], headers["Cache-Control"]) == ("application/problem+json", "no-store")


def test_the_page_escapes_what_it_tells() -> None:
    request = RequestFactory().get("/", headers={"Accept": "text/html"})
    page = Problem(status=409, detail="<script>").to_response(request).content.decode()
    assert "&lt;script&gt;" in page


def test_an_error_may_name_its_status() -> None:
    class Held(ConcurrencyError):
        """Somebody else has it."""

        http_status = 423

    problem = problem_of(Held())
    assert problem is not None
    assert (problem.status, problem.to_dict()["title"]) == (423, "Locked")


# Which errors of the database mean that it may be asked again


def raised(error: Exception, cause: Exception | None = None) -> Any:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        raised(OperationalError("connection failed"), psycopg.OperationalError("connection failed")),
        raised(InterfaceError("the connection is closed"), psycopg.InterfaceError("the connection is closed")),
        OperationalError("The embedded PostgreSQL did not start"),
        raised(OperationalError(), psycopg.errors.TooManyConnections()),
        raised(OperationalError(), psycopg.errors.AdminShutdown()),
        raised(OperationalError(), psycopg.errors.CannotConnectNow()),
        raised(OperationalError(), psycopg.errors.QueryCanceled()),
        raised(OperationalError(), psycopg.errors.IdleInTransactionSessionTimeout()),
        raised(OperationalError(), psycopg.errors.SerializationFailure()),
        OperationalError(2006, "Server has gone away"),
    ],
    ids=repr,
)
def test_what_may_be_asked_again_is_503(error: Any) -> None:
    problem = problem_of(error)
    assert problem is not None
    assert (problem.status, dict(problem.headers)) == (503, {"Retry-After": "1"})


@pytest.mark.parametrize(
    "error",
    [
        raised(ProgrammingError(), psycopg.errors.UndefinedTable()),
        raised(IntegrityError(), psycopg.errors.CheckViolation()),
        raised(OperationalError(), psycopg.errors.ObjectInUse()),
        OperationalError(1054, "Unknown column"),
        ProgrammingError("the last operation didn't produce a result"),
    ],
    ids=repr,
)
def test_every_other_error_is_not(error: Any) -> None:
    assert problem_of(error) is None


def test_a_table_that_sqlite_does_not_have_is_no_outage() -> None:
    with pytest.raises(sqlite3.OperationalError) as missing, closing(sqlite3.connect(":memory:")) as file:
        file.execute("SELECT 1 FROM nothing")
    assert not is_outage(raised(OperationalError(*missing.value.args), missing.value))
