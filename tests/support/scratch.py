"""A test database that the lab takes for the project's own, beside which it makes scratch databases."""

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import utils

from django_lockstep.lab.explorer.tables import scratch


@pytest.fixture(scope="session")
def _no_scratch_left(django_db_setup: None, django_db_blocker: pytest.FixtureRequest) -> Iterator[None]:
    yield
    with django_db_blocker.unblock(), connection.cursor() as cursor:  # type: ignore[attr-defined]
        scratch._drop_unused(cursor, scratch._project(connection), template="")


@pytest.fixture
def no_tests(_no_scratch_left: None, transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the lab see no test runner: to it, the test database is the project's own."""
    monkeypatch.delattr(utils._TestState, "saved_data")
