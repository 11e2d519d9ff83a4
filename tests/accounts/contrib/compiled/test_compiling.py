"""Statements of the query set API with parameters: values are adapted as their fields would."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

from accounts.contrib.compiled.compiling import Compiled, Parameter, compile_select, parameter
from tests.support.sessions import query
from tests.testapps.shop.models import Seat

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def here() -> Iterator[BaseDatabaseWrapper]:
    """The connection, with the bank's settings of prepared statements put back afterwards."""
    connection = connections["default"]
    connection.ensure_connection()
    driver: Any = connection.connection
    before = driver.prepare_threshold
    yield connection
    driver.prepare_threshold = before


def test_values_are_adapted_as_their_fields_would(here: BaseDatabaseWrapper) -> None:
    seat = Seat.objects.create()
    statement = compile_select(Seat.objects.filter(pk=parameter(Seat, "pk")).values_list("row"))
    assert statement.fetch(here, {"pk": str(seat.pk)}) == [("A",)]
    with pytest.raises(ValueError, match="expected a number"):
        statement.fetch(here, {"pk": "first"})


def test_writes_say_how_many_rows_they_wrote(here: BaseDatabaseWrapper) -> None:
    Seat.objects.create()
    update = Compiled(f"UPDATE {Seat._meta.db_table} SET guest = %s", (parameter(Seat, "guest"),))
    assert update.write(here, {"guest": "ada"}) == 1


def test_numbers_of_all_sizes_share_one_prepared_statement(here: BaseDatabaseWrapper) -> None:
    driver: Any = here.connection
    driver.prepare_threshold = 0
    name = uuid4().hex
    statement = Compiled(f"SELECT %s + 0 AS a{name}", (Parameter("number", models.BigIntegerField()),))
    for number in (1, 10**5, 10**10):
        assert statement.fetch(here, {"number": number}) == [(number,)]
    count = query("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE %s", f"%{name}%")
    assert count == 1
