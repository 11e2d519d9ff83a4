"""Equal values have equal fingerprints, in whatever form they came; others have not."""

import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from psycopg.types.json import Jsonb

from django_lockstep.lab.finder.record.fingerprints import NULL, Fingerprints, comparable

MOMENT = datetime(2026, 2, 3, 4, 5, 6, 700000, tzinfo=UTC)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("value", "cast"),
    [
        (None, "int"),
        (True, "bool"),
        (5, "bigint"),
        (Decimal("5.10"), "numeric(10, 3)"),
        (Decimal(0), "numeric(10, 3)"),
        (1e20, "float8"),
        (0.1, "float4"),
        ("naïve 'text'", "text"),
        ("", "varchar"),
        (b"\x00\xff", "bytea"),
        (MOMENT, "timestamptz"),
        (MOMENT.astimezone(timezone(timedelta(hours=9))), "timestamptz"),
        (MOMENT.replace(tzinfo=None), "timestamp"),
        (date(2026, 2, 3), "date"),
        (time(4, 5, 6, 500000), "time"),
        (uuid.UUID(int=7), "uuid"),
        (Jsonb({"b": [1, None], "a": "x"}), "jsonb"),
    ],
)
def test_a_parameter_equals_what_the_server_returns_for_it(value: Any, cast: str) -> None:
    fingerprints = Fingerprints(b"key")
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT %s::{cast}", [value])
        result = cursor.cursor.pgresult

    assert comparable(result.ftype(0))
    assert fingerprints.of_column(result.get_value(0, 0), result.ftype(0)) == fingerprints.of(value)


@pytest.mark.django_db
@pytest.mark.parametrize("value", ["'{1,2}'::int[]", "'1 day'::interval", "int4range(1, 2)", "'10.0.0.1'::inet"])
def test_types_whose_text_differs_from_pythons_are_not_compared(value: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {value}")
        assert not comparable(cursor.cursor.pgresult.ftype(0))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12.50", Decimal("12.5")),
        ("7", 7),
        (" Ada ", "Ada"),
        ("on", True),
        ("false", False),
        ("2026-02-03T04:05:06.7Z", MOMENT),
        ("2026-02-03", "2026-02-03"),
    ],
)
def test_a_value_is_found_in_the_text_that_it_came_as(text: str, value: object) -> None:
    fingerprints = Fingerprints(b"key")

    assert fingerprints.of(value) in set(fingerprints.of_input(text))


def test_with_a_key_nothing_can_be_read_and_another_key_makes_others() -> None:
    first, other = Fingerprints(b"key").of("secret"), Fingerprints(b"other").of("secret")

    assert first != other
    assert len(first) == 12
    assert "secret" not in first
    # Without a key, values stay readable.
    assert Fingerprints(None).of("text") == "=text"


def test_null_and_truth_are_no_secret_and_a_list_is_its_elements() -> None:
    fingerprints = Fingerprints(b"key")

    assert [fingerprints.of(value) for value in (None, True, False)] == [NULL, "True", "False"]
    assert fingerprints.of([1, None]) == f"[{fingerprints.of(1)}|{NULL}]"


@pytest.mark.parametrize("value", [datetime.max.replace(tzinfo=timezone(timedelta(hours=-9))), Decimal("NaN"), 10**400])
def test_no_value_is_too_odd(value: object) -> None:
    assert Fingerprints(None).of(value).startswith("=")


def test_a_year_before_christ_is_taken_as_it_is() -> None:
    assert Fingerprints(None).of_column(b"0044-03-15 12:00:00 BC", 1114) == "=0044-03-15 12:00:00 BC"
