"""Driver errors become our errors at one edge."""

import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from concurrency.exceptions import RecordModifiedError
from django.db import OperationalError, connection, transaction

from accounts.errors import InvalidAmount
from accounts.models import Account
from django_lockstep.leases import LeaseTimedOut
from django_lockstep.locking import (
    ConcurrencyError,
    DeadlockDetected,
    LockNotAvailable,
    SerializationFailure,
    StaleVersionError,
    translated_errors,
)


def test_an_invalid_amount_that_cannot_be_pickled_travels_as_its_text() -> None:
    value = lambda: None  # noqa: E731
    copy = pickle.loads(pickle.dumps(InvalidAmount("told", value=value, rule="rule")))  # noqa: S301
    assert copy.value == repr(value)


def test_the_message_tells_the_facts_that_are_known() -> None:
    error = StaleVersionError(model=Account, pk=7, expected=1, found=2)
    assert str(error) == "accounts.Account 7 was changed since it was read (version 2, you have 1)."
    assert str(StaleVersionError(expected=1)) == "The row was changed since it was read. (expected=1)"
    failure = SerializationFailure("No", model=Account, pk=7, sqlstate="40001")
    assert str(failure) == "No (model='accounts.Account', pk=7, sqlstate='40001')"


@pytest.mark.parametrize("kind", [LockNotAvailable, LeaseTimedOut, DeadlockDetected, SerializationFailure])
def test_lock_errors_are_still_what_django_raises(kind: type[ConcurrencyError]) -> None:
    assert issubclass(kind, OperationalError)


def test_a_stale_version_is_still_what_django_concurrency_raises() -> None:
    instance = Account(pk=7)
    error: Any = StaleVersionError(target=instance)
    assert isinstance(error, RecordModifiedError)
    assert error.target is instance


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("sqlstate", "kind"), [("55P03", LockNotAvailable), ("40P01", DeadlockDetected), ("40001", SerializationFailure)]
)
def test_errors_are_translated_by_sqlstate(sqlstate: str, kind: type[ConcurrencyError]) -> None:
    with (
        pytest.raises(kind) as caught,
        translated_errors(model=Account, pk=7),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(f"DO $$ BEGIN RAISE EXCEPTION 'made up' USING ERRCODE = '{sqlstate}'; END $$")
    assert (caught.value.sqlstate, caught.value.model, caught.value.pk) == (sqlstate, Account, 7)
    assert isinstance(caught.value.__cause__, OperationalError)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OperationalError(1205, "Lock wait timeout exceeded"), LockNotAvailable),
        (OperationalError(3572, "NOWAIT is set"), LockNotAvailable),
        (OperationalError(1213, "Deadlock found"), DeadlockDetected),
        (OperationalError(1020, "Record has changed since last read"), SerializationFailure),
    ],
)
def test_errors_of_mysql_are_translated_by_their_number(error: Exception, kind: type[ConcurrencyError]) -> None:
    with pytest.raises(kind) as caught, translated_errors(pk=7):
        raise error
    assert (caught.value.pk, caught.value.sqlstate, caught.value.__cause__) == (7, None, error)


def test_a_busy_sqlite_is_a_lock_that_was_not_to_be_had(tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "db", timeout=0, isolation_level=None)

    with closing(connect()) as one, closing(connect()) as two:
        one.execute("BEGIN IMMEDIATE")
        with pytest.raises(LockNotAvailable), translated_errors():
            try:
                two.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                raise OperationalError(*error.args) from error


@pytest.mark.django_db
def test_other_errors_pass_untouched() -> None:
    with pytest.raises(ZeroDivisionError), translated_errors():
        _ = 1 / 0
    with pytest.raises(Exception, match="no_such_table"), translated_errors(), transaction.atomic():
        connection.cursor().execute("SELECT * FROM no_such_table")


def test_an_error_that_was_translated_is_not_translated_again() -> None:
    error = LockNotAvailable(pk=1, sqlstate="55P03")
    with pytest.raises(LockNotAvailable) as caught, translated_errors(pk=2):
        raise error
    assert caught.value is error
