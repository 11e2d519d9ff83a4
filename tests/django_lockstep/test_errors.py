"""All errors of the library are one tree, which its module draws as it is; they carry data, also between processes."""

import importlib
import pickle
import pkgutil
import re
import sqlite3
from contextlib import closing
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from concurrency.exceptions import RecordModifiedError
from django.db import OperationalError, transaction

import django_lockstep
from accounts.errors import EntryIsFinal, IdempotencyKeyReused, InsufficientFunds, InvalidAmount
from accounts.models import Account
from django_lockstep import editing, errors, http, leases, locking
from django_lockstep.errors import LockstepError
from django_lockstep.leases import Holder, LeaseTimedOut
from django_lockstep.locking import (
    ConcurrencyError,
    DeadlockDetected,
    LockNotAvailable,
    SerializationFailure,
    StaleVersionError,
    translated_errors,
)
from tests.support.sessions import query
from tests.testapps.press.models import Report

ROOMS = [
    module.name
    for module in pkgutil.walk_packages(django_lockstep.__path__, "django_lockstep.")
    if module.name.endswith((".errors", ".http.preconditions"))
]


def below(error: type[LockstepError]) -> set[type[LockstepError]]:
    return {error}.union(*(below(child) for child in error.__subclasses__()))


def test_the_drawn_tree_is_the_real_one() -> None:
    for name in ROOMS:
        importlib.import_module(name)
    drawn: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"    ((?:[│├└─ ]{4})*)([A-Z]\w+)", line):
            depth = len(match[1]) // 4
            path[depth:] = [match[2]]
            drawn[match[2]] = path[depth - 1] if depth else None
    ours = {error for error in below(LockstepError) if error.__module__ in ROOMS}
    assert drawn.pop("LockstepError") is None
    assert drawn == {
        error.__name__: next(base.__name__ for base in error.__bases__ if issubclass(base, LockstepError))
        for error in ours - {LockstepError}
    }


def test_every_room_raises_errors_of_the_tree() -> None:
    for name in ROOMS:
        room = importlib.import_module(name)
        public = [getattr(room, value) for value in getattr(room, "__all__", vars(room))]
        classes = [value for value in public if isinstance(value, type) and value.__module__ == name]
        errors = [value for value in classes if issubclass(value, BaseException)]
        assert all(issubclass(error, LockstepError) for error in errors)


FACTS: dict[str, Any] = {"model": Account, "pk": 7, "expected": 1, "actual": 2, "sqlstate": "40001"}
SINCE = datetime(2026, 1, 1, tzinfo=timezone.utc)  # noqa: UP017
HOLDER = Holder(key="k", owner="ada", token=7, since=SINCE, remaining=3.25, data={"a": [1]}, released=False)


@pytest.mark.parametrize(
    "error",
    [
        locking.ConcurrencyError("told", **FACTS),
        locking.StaleVersionError("told", **FACTS),
        locking.LockNotAvailable("told", **FACTS),
        locking.DeadlockDetected("told", **FACTS),
        locking.SerializationFailure("told", **FACTS),
        locking.RetriesExhausted("told", attempts=3, elapsed=0.5, **FACTS),
        locking.StaleVersionError(target=Account(pk=7)),
        locking.ConcurrencyError(),
        leases.LeaseError("told", key="k", token=3),
        leases.LeaseNotAcquired("told", key="k", holder=HOLDER),
        leases.LeaseLost("told", key="k", token=3),
        leases.LeaseTimedOut(sqlstate="57014"),
        leases.StaleToken(model=Report, pk=1, token=3, actual=4),
        editing.EditLocked("told", model=Report, holder="ada", since=SINCE, expires=SINCE, locked_by="press.report"),
        editing.EditLockLost("told", model=Report, how="expired", by="ada", at=SINCE),
        http.PreconditionFailed(etag='"1.2"'),
        http.MalformedPrecondition("x"),
        InvalidAmount("told", value="1e5", rule="rule"),
        InsufficientFunds("told", balance=Decimal(1), overdraft_limit=Decimal(0), amount=Decimal(2)),
        IdempotencyKeyReused("told", idempotency_key="k", recorded=Decimal(1)),
        EntryIsFinal("told"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    data, kept = ({key: value for key, value in vars(item).items() if key != "target"} for item in (error, copy))
    assert (type(copy), str(copy), kept) == (type(error), str(error), data)


def test_a_holder_is_named_to_people() -> None:
    assert str(HOLDER) == "has been held by ada since 2026-01-01 00:00:00 UTC and expires in 3.2 s"


# Driver errors become our errors at one edge


def test_an_invalid_amount_that_cannot_be_pickled_travels_as_its_text() -> None:
    value = lambda: None  # noqa: E731
    copy = pickle.loads(pickle.dumps(InvalidAmount("told", value=value, rule="rule")))  # noqa: S301
    assert copy.value == repr(value)


def test_the_message_tells_the_facts_that_are_known() -> None:
    error = StaleVersionError(model=Account, pk=7, expected=1, actual=2)
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
    with pytest.raises(kind) as caught, translated_errors(model=Account, pk=7), transaction.atomic():
        query(f"DO $$ BEGIN RAISE EXCEPTION 'made up' USING ERRCODE = '{sqlstate}'; END $$")
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

    with closing(connect()) as first, closing(connect()) as second:
        first.execute("BEGIN IMMEDIATE")
        with pytest.raises(LockNotAvailable), translated_errors():
            try:
                second.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                raise OperationalError(*error.args) from error


@pytest.mark.django_db
def test_other_errors_pass_untouched() -> None:
    with pytest.raises(ZeroDivisionError), translated_errors():
        _ = 1 / 0
    with pytest.raises(Exception, match="no_such_table"), translated_errors(), transaction.atomic():
        query("SELECT * FROM no_such_table")


def test_an_error_that_was_translated_is_not_translated_again() -> None:
    error = LockNotAvailable(pk=1, sqlstate="55P03")
    with pytest.raises(LockNotAvailable) as caught, translated_errors(pk=2):
        raise error
    assert caught.value is error
