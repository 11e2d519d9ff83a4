"""Which errors of the database mean that it may be asked again."""

import sqlite3
from typing import Any

import psycopg
import pytest
from django.db import IntegrityError, InterfaceError, OperationalError, ProgrammingError, connection

from django_lockstep.http import problem_of
from django_lockstep.http.problems import is_outage


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
    with pytest.raises(sqlite3.OperationalError) as missing, sqlite3.connect(":memory:") as file:
        file.execute("SELECT 1 FROM nothing")
    assert not is_outage(raised(OperationalError(*missing.value.args), missing.value))


@pytest.mark.django_db
def test_a_statement_that_the_server_cancelled_is_an_outage() -> None:
    with connection.cursor() as cursor, pytest.raises(OperationalError) as cancelled:
        cursor.execute("SET LOCAL statement_timeout = 1; SELECT pg_sleep(60)")
    assert is_outage(cancelled.value)
