"""A prepared statement goes the way of all SQL: through Django's wrappers, log and errors, on Django's connection."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.db import DataError, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test.utils import CaptureQueriesContext

from django_lockstep.locking.prepared import fetch
from tests.support.sessions import Session, query

pytestmark = pytest.mark.django_db(transaction=True)

DOUBLE = "SELECT %s::int * 2"


@pytest.fixture
def threshold() -> Iterator[None]:
    """What the bank's settings say of prepared statements, put back."""
    driver: Any = here().connection
    before = driver.prepare_threshold
    yield
    driver.prepare_threshold = before


def here() -> BaseDatabaseWrapper:
    connections["default"].ensure_connection()
    return connections["default"]


def prepared(text: str) -> int:
    return int(query("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %s", f"%{text}%"))


@pytest.mark.usefixtures("threshold")
def test_it_is_prepared_where_the_settings_let_it_be() -> None:
    driver: Any = here().connection
    for allowed, expected in ((None, 0), (0, 1)):
        name = uuid4().hex
        driver.prepare_threshold = allowed
        for _ in range(3):
            fetch(here(), f"SELECT 1 AS a{name}")
        assert prepared(name) == expected


def test_wrappers_see_it() -> None:
    seen = []

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(look):
        fetch(here(), DOUBLE, [3])
    assert seen == [(DOUBLE, [3])]


def test_the_log_has_it_with_its_values() -> None:
    with CaptureQueriesContext(connection) as captured:
        fetch(here(), DOUBLE, [3])
    assert [entry["sql"] for entry in captured] == ["SELECT 3::int * 2"]


def test_its_errors_are_djangos() -> None:
    with pytest.raises(DataError, match="division by zero"):
        fetch(here(), "SELECT 1 / %s::int", [0])


def test_in_a_broken_transaction_it_is_refused() -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            fetch(here(), DOUBLE, [1])


def test_it_survives_a_new_connection() -> None:
    assert fetch(here(), DOUBLE, [1]) == [(2,)]
    connection.close()
    assert fetch(here(), DOUBLE, [2]) == [(4,)]


def test_a_connection_that_threads_share_shares_no_cursor(other: Session) -> None:
    shared = here()
    shared.inc_thread_sharing()
    try:
        assert other.run(fetch, shared, DOUBLE, [2]) == [(4,)]
    finally:
        shared.dec_thread_sharing()


# Times come from prepared statements as they come from Django's own cursors, whatever session and settings say


SOME = (
    "2026-11-21 23:45:27.123456+00",
    "2026-11-21 23:45:27.1+00",
    "2026-11-21 23:45:27+00",
    "2026-10-25 00:30:00+00",
    "2026-10-25 01:30:00+00",
    "0001-01-01 00:00:00+00",
    "9999-12-30 23:59:59.999999+00",
)
"""A fraction of a second whole, cut short and left out; the hour that Berlin has twice; the ends."""
NONE_OF_PYTHONS = ("infinity", "-infinity", "0044-03-15 12:00:00+00 BC", "12026-11-21 00:00:00+00")


@pytest.fixture(params=["in UTC", "in Berlin", "without a zone"])
def zoned(request: pytest.FixtureRequest, settings: Any) -> Iterator[BaseDatabaseWrapper]:
    """A connection whose session and settings have this zone."""
    connection = connections["default"].copy()
    if request.param == "in Berlin":
        connection.settings_dict["TIME_ZONE"] = "Europe/Berlin"
    settings.USE_TZ = request.param != "without a zone"
    connection.ensure_connection()
    yield connection
    connection.close()


def ours(zoned: BaseDatabaseWrapper, time: str) -> Any:
    return fetch(zoned, "SELECT %s::timestamptz", [time])[0][0]


def theirs(zoned: BaseDatabaseWrapper, time: str) -> Any:
    with zoned.cursor() as cursor:
        cursor.execute("SELECT %s::timestamptz", [time])
        return cursor.fetchone()[0]


def everything(value: Any) -> tuple[Any, ...]:
    return value.timetuple(), value.microsecond, value.fold, value.tzinfo


@pytest.mark.parametrize("time", SOME)
def test_a_time_is_the_same(zoned: BaseDatabaseWrapper, time: str) -> None:
    assert everything(ours(zoned, time)) == everything(theirs(zoned, time))


@pytest.mark.parametrize("time", NONE_OF_PYTHONS)
def test_what_is_no_time_in_python_is_the_same_error(zoned: BaseDatabaseWrapper, time: str) -> None:
    with pytest.raises(DataError) as expected:
        theirs(zoned, time)
    with pytest.raises(DataError) as raised:
        ours(zoned, time)
    assert str(raised.value) == str(expected.value)


@pytest.mark.parametrize("setting", ["TIME ZONE 'Asia/Kolkata'", "TIME ZONE 'UTC'"])
def test_a_session_that_left_its_zone_is_served_as_django_does(zoned: BaseDatabaseWrapper, setting: str) -> None:
    with zoned.cursor() as cursor:
        cursor.execute(f"SET {setting}")
    assert everything(ours(zoned, SOME[0])) == everything(theirs(zoned, SOME[0]))
