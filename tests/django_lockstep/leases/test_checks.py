"""System checks say where leases promise less, and what is missing."""

from typing import Any

import pytest
from django.db import connection

from django_lockstep.leases.checks import check_guards, check_storage

pytestmark = pytest.mark.django_db


def ids(messages: list[Any]) -> list[str]:
    assert all(message.hint for message in messages)
    return [message.id for message in messages]


def test_w020_a_database_without_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ids(check_guards(None)) == []
    monkeypatch.setattr(type(connection._connections["default"]), "vendor", "sqlite")  # type: ignore[attr-defined]
    assert ids(check_guards(None)) == ["lockstep.W020"]


@pytest.mark.parametrize(
    "missing",
    [
        "SEQUENCE lockstep_leases_lease_token",
        "FUNCTION lockstep_leases_lease_acquire",
        "FUNCTION lockstep_leases_lease_release",
    ],
)
def test_e020_a_table_without_its_storage(missing: str) -> None:
    assert ids(check_storage(None, databases=["default"])) == []
    with connection.cursor() as cursor:
        cursor.execute(f"DROP {missing}")
    assert ids(check_storage(None, databases=["default"])) == ["lockstep.E020"]


def test_no_database_is_asked_unless_it_is_named(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert check_storage(None) == []


def test_a_table_that_is_not_there_lacks_nothing() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE lockstep_leases_lease RENAME TO elsewhere")
        cursor.execute("DROP FUNCTION lockstep_leases_lease_acquire")
    assert ids(check_storage(None, databases=["default"])) == []
