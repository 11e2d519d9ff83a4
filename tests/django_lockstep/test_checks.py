"""What a room needs from the settings is told by a check, before a page fails."""

import sys
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.core import checks
from django.db import connection
from django.urls import include, path

from django_lockstep.admin.versioned import VersionedModelAdmin
from django_lockstep.checks import check_lab_pages, check_lease_functions, check_middleware
from django_lockstep.leases import lease
from django_lockstep.leases.checks import check_guards, check_storage
from tests.testapps.press.models import Author
from tests.testapps.shop.models import Seat

MIDDLEWARE = "django_lockstep.editing.writers.EditLockMiddleware"

urlpatterns = [path("races/", include("django_lockstep.lab.urls"))]


@pytest.fixture
def without(settings: Any) -> Any:
    """Take an app out of the settings."""

    def take_out(name: str) -> None:
        settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != name]

    return take_out


def hints_of(messages: list[Any]) -> list[tuple[str, str]]:
    return [(message.id, message.hint) for message in messages]


def test_this_project_has_what_it_uses() -> None:
    assert lease is not None
    assert [message.id for message in checks.run_checks() if str(message.id).startswith("lockstep.")] == []


def test_the_versioned_admin_needs_the_library(without: Any) -> None:
    admin = VersionedModelAdmin(Seat, AdminSite())
    assert admin.check() == []
    without("django_lockstep")
    assert hints_of(admin.check()) == [("lockstep.E030", "Add 'django_lockstep' to INSTALLED_APPS.")]


def test_edit_locked_models_need_their_app(without: Any) -> None:
    without("django_lockstep.editing")
    expected = ("lockstep.E024", "Add 'django_lockstep.editing' to INSTALLED_APPS.")
    assert expected in hints_of(Author.check())


def test_the_middleware_of_editing_needs_its_app(without: Any, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    assert check_middleware(None) == []
    without("django_lockstep.editing")
    assert hints_of(check_middleware(None)) == [("lockstep.E025", "Add 'django_lockstep.editing' to INSTALLED_APPS.")]


def test_the_pages_of_the_lab_need_their_app(without: Any, settings: Any) -> None:
    without("django_lockstep.lab")
    settings.ROOT_URLCONF = __name__
    assert hints_of(check_lab_pages(None)) == [("lockstep.E031", "Add 'django_lockstep.lab' to INSTALLED_APPS.")]


def test_a_project_without_pages_of_the_lab_needs_no_lab(without: Any, settings: Any) -> None:
    without("django_lockstep.lab")
    settings.ROOT_URLCONF = "tests.django_lockstep.editing.urls"
    assert check_lab_pages(None) == []


def test_leases_need_their_app(without: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_lease_functions(None) == []
    without("django_lockstep.leases")
    assert hints_of(check_lease_functions(None)) == [
        ("lockstep.W022", "Add 'django_lockstep.leases' to INSTALLED_APPS.")
    ]
    monkeypatch.delitem(sys.modules, "django_lockstep.leases.stores")
    assert check_lease_functions(None) == []


# System checks say where leases promise less, and what is missing


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
