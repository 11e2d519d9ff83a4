"""Times come from compiled statements as they come from Django's own cursors, whatever session and settings say."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DataError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_lockstep.locking.compiled import Compiled, fetch

pytestmark = pytest.mark.django_db(transaction=True)

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
def connection(request: pytest.FixtureRequest, settings: Any) -> Iterator[BaseDatabaseWrapper]:
    """A connection whose session and settings have this zone."""
    made = connections["default"].copy()
    if request.param == "in Berlin":
        made.settings_dict["TIME_ZONE"] = "Europe/Berlin"
    settings.USE_TZ = request.param != "without a zone"
    made.ensure_connection()
    yield made
    made.close()


def ours(connection: BaseDatabaseWrapper, time: str) -> Any:
    return fetch(connection, Compiled("SELECT %s::timestamptz", (time,)), {})[0][0]


def theirs(connection: BaseDatabaseWrapper, time: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::timestamptz", [time])
        return cursor.fetchone()[0]


def everything(value: Any) -> tuple[Any, ...]:
    return value.timetuple(), value.microsecond, value.fold, value.tzinfo


@pytest.mark.parametrize("time", SOME)
def test_a_time_is_the_same(connection: BaseDatabaseWrapper, time: str) -> None:
    assert everything(ours(connection, time)) == everything(theirs(connection, time))


@pytest.mark.parametrize("time", NONE_OF_PYTHONS)
def test_what_is_no_time_in_python_is_the_same_error(connection: BaseDatabaseWrapper, time: str) -> None:
    with pytest.raises(DataError) as expected:
        theirs(connection, time)
    with pytest.raises(DataError) as found:
        ours(connection, time)
    assert str(found.value) == str(expected.value)


def test_null_is_none(connection: BaseDatabaseWrapper) -> None:
    assert fetch(connection, Compiled("SELECT NULL::timestamptz", ()), {}) == [(None,)]


@pytest.mark.parametrize("setting", ["TIME ZONE 'Asia/Kolkata'", "TIME ZONE 'UTC'"])
def test_a_session_that_left_its_zone_is_served_as_django_does(connection: BaseDatabaseWrapper, setting: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET {setting}")
    assert everything(ours(connection, SOME[0])) == everything(theirs(connection, SOME[0]))
